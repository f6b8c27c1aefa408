package fakeaws

import (
	"context"
	"maps"
	"net/http"
	"slices"
)

// Call is one call that the server received.
type Call struct {
	// Service is iam, sts or eks.
	Service, Operation string
	// Account and Caller, an ARN, are empty for calls without a valid signature.
	Account, Caller string
	// Parameters are the request parameters by their names on the wire. Lists and maps of
	// EKS requests are in JSON. Web identity tokens are omitted.
	Parameters map[string]string
	// ErrorCode is the error code of the response; empty on success.
	ErrorCode string
	// Fault is the injected fault.
	Fault FaultKind
}

// FaultKind is a kind of fault.
type FaultKind string

const (
	// NoFault does not change the call.
	NoFault FaultKind = ""
	// Throttled returns an error for an exceeded request rate.
	Throttled FaultKind = "Throttled"
	// Failed returns an error.
	Failed FaultKind = "Failed"
	// ResponseLost executes the call and closes the connection without a response.
	ResponseLost FaultKind = "ResponseLost"
	// RequestLost closes the connection before the call takes effect.
	RequestLost FaultKind = "RequestLost"
)

// Fault is a fault of a call. The zero value is no fault.
type Fault struct {
	Kind FaultKind
	// Code, Message and Status are the response if Kind is Failed.
	Code, Message string
	Status        int
	// Until delays the call until the channel is closed. The rest of the fault follows.
	Until <-chan struct{}
}

// Throttle returns a fault that rejects the call with a throttling error.
func Throttle() Fault { return Fault{Kind: Throttled} }

// ServerError returns a fault that fails the call with an internal error of the service. The
// HTTP status is 500 or 503.
func ServerError(status int) Fault { return Fault{Kind: Failed, Status: status} }

// Error returns a fault that fails the call with that code as a client error.
func Error(code string) Fault {
	return Fault{Kind: Failed, Code: code, Message: "injected fault", Status: http.StatusBadRequest}
}

// LostResponse returns a fault that executes the call and sends no response.
func LostResponse() Fault { return Fault{Kind: ResponseLost} }

// LostRequest returns a fault that closes the connection before the call takes effect.
func LostRequest() Fault { return Fault{Kind: RequestLost} }

// Delay returns a fault that delays the call until the channel is closed.
func Delay(until <-chan struct{}) Fault { return Fault{Until: until} }

// SetFaults sets the function that chooses the fault of each call; nil disables faults. The
// server calls the function for every call with a valid signature and for every operation
// that needs none, before the call takes effect. The function must be safe for concurrent
// use. Go's HTTP client repeats a GET once if the connection was closed; the server handles
// the repetition as another call.
func (s *Server) SetFaults(faults func(Call) Fault) {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	s.faults = faults
}

// Calls returns the calls since the start or the last ResetCalls, in the order in which they
// took effect. A call is recorded before its response is sent. Token reviews are not recorded.
func (s *Server) Calls() []Call {
	s.callsMu.Lock()
	defer s.callsMu.Unlock()
	calls := slices.Clone(s.calls)
	for i := range calls {
		calls[i].Parameters = maps.Clone(calls[i].Parameters)
	}
	return calls
}

// ResetCalls deletes the recorded calls.
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

// wait returns true when the delay of the fault is over, or false if the client disconnects
// or the server closes before.
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

// answer returns the error of the fault, or nil.
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

// serverErrorCode returns the error code of a service for an internal error.
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
