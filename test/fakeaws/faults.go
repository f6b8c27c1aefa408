package fakeaws

import (
	"context"
	"maps"
	"net/http"
	"slices"
)

// Call is one call that the server got.
type Call struct {
	// Service is iam, sts or eks.
	Service, Operation string
	// Account and Caller, an ARN, are empty for calls without a signature and for those
	// whose signature was refused.
	Account, Caller string
	// Parameters are those of the request by their name on the wire; what is a list or a
	// map in a request to EKS is in its JSON form. Web identity tokens are left out.
	Parameters map[string]string
	// ErrorCode is that of the answer, empty for success.
	ErrorCode string
	// Fault is what was injected.
	Fault FaultKind
}

// FaultKind is a way to go wrong.
type FaultKind string

const (
	// NoFault lets the call happen.
	NoFault FaultKind = ""
	// Throttled answers that the rate of calls is exceeded.
	Throttled FaultKind = "Throttled"
	// Failed answers with an error.
	Failed FaultKind = "Failed"
	// ResponseLost lets the call take effect and cuts the connection.
	ResponseLost FaultKind = "ResponseLost"
	// RequestLost cuts the connection, without effect.
	RequestLost FaultKind = "RequestLost"
)

// Fault is what happens to a call. The zero value is that nothing does.
type Fault struct {
	Kind FaultKind
	// Code, Message and Status are the answer of a call that is Failed.
	Code, Message string
	Status        int
	// Until delays the call until it is closed, and before the rest of the fault.
	Until <-chan struct{}
}

// Throttle returns the fault of a call that came too fast.
func Throttle() Fault { return Fault{Kind: Throttled} }

// ServerError returns the fault of a service that fails, with an HTTP status of 500 or 503.
func ServerError(status int) Fault { return Fault{Kind: Failed, Status: status} }

// Error returns the fault of an answer with that code, as the client's mistake.
func Error(code string) Fault {
	return Fault{Kind: Failed, Code: code, Message: "injected fault", Status: http.StatusBadRequest}
}

// LostResponse returns the fault of a call that takes effect without an answer.
func LostResponse() Fault { return Fault{Kind: ResponseLost} }

// LostRequest returns the fault of a call that does not arrive.
func LostRequest() Fault { return Fault{Kind: RequestLost} }

// Delay returns the fault of a call that takes effect once the channel is closed.
func Delay(until <-chan struct{}) Fault { return Fault{Until: until} }

// SetFaults sets what goes wrong: the function is asked for every call that is signed
// well, before its effect, and must be safe for concurrent use. Nil is no faults.
// Clients of Go send a GET whose connection was cut once more by themselves, which is
// another call.
func (s *Server) SetFaults(faults func(Call) Fault) {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	s.faults = faults
}

// Calls returns the calls since the start or the last ResetCalls, in the order of their
// effect. A call is listed before its answer is sent. Reviews of tokens are not calls.
func (s *Server) Calls() []Call {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	calls := slices.Clone(s.calls)
	for i := range calls {
		calls[i].Parameters = maps.Clone(calls[i].Parameters)
	}
	return calls
}

// ResetCalls forgets the calls so far.
func (s *Server) ResetCalls() {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	s.calls = nil
}

func (s *Server) record(call Call) {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	if len(s.calls) >= maxCalls {
		s.calls = slices.Delete(s.calls, 0, maxCalls/2)
	}
	s.calls = append(s.calls, call)
}

func (s *Server) faultFor(call Call) Fault {
	s.callsMu.Lock()
	faults := s.faults
	s.callsMu.Unlock()
	if faults == nil {
		return Fault{}
	}
	call.Parameters = maps.Clone(call.Parameters)
	return faults(call)
}

// wait returns once the delay of the fault is over; false if the client or the server
// went away before.
func (f Fault) wait(ctx context.Context) bool {
	if f.Until == nil {
		return true
	}
	select {
	case <-f.Until:
		return true
	case <-ctx.Done():
		return false
	}
}

// answer is the error that the fault answers with, or nil.
func (f Fault) answer(service string) *apiError {
	switch f.Kind {
	case Throttled:
		if service == serviceEKS {
			return &apiError{Code: "ThrottlingException", Message: "Rate exceeded", Status: http.StatusTooManyRequests}
		}
		return &apiError{Code: "Throttling", Message: "Rate exceeded", Status: http.StatusBadRequest}
	case Failed:
		e := &apiError{Code: f.Code, Message: f.Message, Status: f.Status}
		if e.Status == 0 {
			e.Status = http.StatusInternalServerError
		}
		if e.Code == "" {
			e.Code = serverErrorCode(service, e.Status)
		}
		if e.Message == "" {
			e.Message = "The service failed."
		}
		return e
	}
	return nil
}

// serverErrorCode is how a service calls its own failure.
func serverErrorCode(service string, status int) string {
	switch {
	case service == serviceEKS && status == http.StatusServiceUnavailable:
		return "ServiceUnavailableException"
	case service == serviceEKS:
		return "ServerException"
	case status == http.StatusServiceUnavailable:
		return "ServiceUnavailable"
	case service == serviceIAM:
		return "ServiceFailure"
	}
	return "InternalFailure"
}
