package fakeaws

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
)

// Call is one call that the server received.
type Call struct {
	// Service is iam, sts or eks.
	Service, Operation string
	// Caller is an ARN. It is empty for calls without a valid signature.
	Caller string
	// Parameters are the request parameters by their names on the wire. Lists and maps of
	// EKS requests are in JSON. Web identity tokens are omitted.
	Parameters map[string]string
	// ErrorCode is the error code of the response; empty on success.
	ErrorCode string
}

const (
	lostRequest  = "request"
	lostResponse = "response"
)

// Fault is a fault of a call. The zero value is no fault.
type Fault struct {
	code   string
	status int
	lost   string
	until  <-chan struct{}
}

// Throttle returns a fault that rejects the call with a throttling error.
func Throttle() Fault { return Fault{status: http.StatusTooManyRequests} }

// ServerError returns a fault that fails the call with an internal error of the service. The
// HTTP status is 500 or 503.
func ServerError(status int) Fault { return Fault{status: status} }

// Error returns a fault that fails the call with that code as a client error.
func Error(code string) Fault { return Fault{code: code, status: http.StatusBadRequest} }

// LostResponse returns a fault that executes the call and closes the connection without a response.
func LostResponse() Fault { return Fault{lost: lostResponse} }

// LostRequest returns a fault that closes the connection before the call takes effect.
func LostRequest() Fault { return Fault{lost: lostRequest} }

// Delay returns a fault that delays the call until the channel is closed.
func Delay(until <-chan struct{}) Fault { return Fault{until: until} }

// SetFaults sets the function that chooses the fault of each call; nil disables faults. The
// server calls the function for every call with a valid signature and for every operation
// that needs none, before the call takes effect. The function must be safe for concurrent
// use. Go's HTTP client repeats a GET once if the connection was closed; the server handles
// the repetition as another call.
func (s *Server) SetFaults(faults func(Call) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults
}

// Calls returns the calls since the start or the last ResetCalls, in the order in which they
// took effect. A call is recorded before its response is sent. Token reviews are not recorded.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// ResetCalls deletes the recorded calls.
func (s *Server) ResetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

func (s *Server) faultFor(call Call) Fault {
	s.mu.Lock()
	faults := s.faults
	s.mu.Unlock()
	if faults == nil {
		return Fault{}
	}
	call.Parameters = maps.Clone(call.Parameters)
	return faults(call)
}

// wait returns true when the delay of the fault is over, or false if the client disconnects
// or the server closes before.
func (f Fault) wait(ctx context.Context) bool {
	if f.until == nil {
		return true
	}
	select {
	case <-f.until:
		return true
	case <-ctx.Done():
		return false
	}
}

// answer returns the error of the fault, or nil.
func (f Fault) answer(service string) *apiError {
	if f.status == 0 {
		return nil
	}
	code := map[int]string{
		http.StatusTooManyRequests: "Throttling", http.StatusInternalServerError: "InternalFailure", http.StatusServiceUnavailable: "ServiceUnavailable",
	}[f.status]
	if f.code != "" || service == serviceEKS {
		return &apiError{code: cmp.Or(f.code, eksCodes[code]), message: "injected fault", status: f.status, injected: true}
	}
	e := &apiError{code: code, message: "injected fault", status: f.status}
	switch {
	case code == "Throttling":
		e.status = http.StatusBadRequest
	case code == "InternalFailure" && service == serviceIAM:
		e.code = "ServiceFailure"
	}
	return e
}
