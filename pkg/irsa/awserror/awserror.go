// Package awserror makes errors of AWS fit for logs, conditions and users.
package awserror

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// maxMessageLength is of the part that AWS says.
const maxMessageLength = 512

// Error is a call to AWS that failed. Its text is the same for every attempt with the
// same outcome, and has neither credentials nor what could be used as some: AWS
// answers a bad signature with the whole request, session token and all.
type Error struct {
	// Service and Operation are what was called, such as iam and CreateRole.
	Service, Operation string
	// Subject is what the call was about, such as the name of a role.
	Subject string
	// Code is that of AWS; empty if there was no answer.
	Code string

	message string
	cause   error
}

// New returns the error of a call; nil if err is nil.
func New(service, operation, subject string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Service: service, Operation: operation, Subject: subject, cause: err}
	// What signs a call may have to call AWS itself, and that may be what failed.
	var through string
	var outer, inner *smithy.OperationError
	if errors.As(err, &outer) && errors.As(outer.Err, &inner) {
		through = fmt.Sprintf("getting credentials by %s %s: ", inner.Service(), inner.Operation())
	}
	var answer smithy.APIError
	if errors.As(err, &answer) {
		e.Code = answer.ErrorCode()
		e.message = through + e.Code + ": " + line(answer.ErrorMessage())
	} else {
		e.message = through + line(cause(err))
	}
	return e
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %s for %s: %s", e.Service, e.Operation, e.Subject, e.message)
}

// Unwrap returns the error of the SDK, whose text is for no log.
func (e *Error) Unwrap() error {
	return e.cause
}

// Code returns the code that AWS has answered a call with; empty for another error.
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// cause is the text of an error without an answer, free of attempts and request ids.
func cause(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	var send *smithyhttp.RequestSendError
	var request *url.Error
	var operation *smithy.OperationError
	switch {
	case errors.As(err, &request):
		host := request.URL
		if parsed, parseErr := url.Parse(request.URL); parseErr == nil {
			host = parsed.Host
		}
		return fmt.Sprintf("no answer from %s: %v", host, request.Err)
	case errors.As(err, &send):
		return send.Err.Error()
	case errors.As(err, &operation):
		var inner *smithy.OperationError
		if errors.As(operation.Err, &inner) {
			operation = inner
		}
		return operation.Err.Error()
	}
	return err.Error()
}

// line is the first one of a text, and not too long.
func line(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.TrimSpace(s)
	if len(s) > maxMessageLength {
		s = strings.ToValidUTF8(s[:maxMessageLength], "") + "…"
	}
	return s
}
