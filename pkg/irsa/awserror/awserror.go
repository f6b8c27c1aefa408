// Package awserror converts errors of AWS for logs, conditions and users.
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

// maxMessageLength bounds the message of AWS, in bytes.
const maxMessageLength = 512

// Error is a failed call to AWS. Its text is the same for each attempt with the same outcome. It contains no
// credentials. In the response to an invalid signature, AWS repeats the whole request, including the session token.
type Error struct {
	// Service and Operation name the call, for example iam and CreateRole.
	Service, Operation string
	// Subject is the object of the call, for example the name of a role.
	Subject string
	// Code is the error code of AWS. It is empty if there was no response.
	Code string

	message string
	cause   error
}

// New returns the error of a call, or nil if err is nil.
func New(service, operation, subject string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Service: service, Operation: operation, Subject: subject, cause: err}
	// The failed call may be one that fetched the credentials.
	var through string
	var failed, inner *smithy.OperationError
	if errors.As(err, &failed) && errors.As(failed.Err, &inner) {
		through = fmt.Sprintf("getting credentials by %s %s: ", inner.Service(), inner.Operation())
		failed = inner
	}
	var answer smithy.APIError
	if errors.As(err, &answer) {
		e.Code = answer.ErrorCode()
		e.message = through + e.Code + ": " + line(answer.ErrorMessage())
	} else {
		e.message = through + line(cause(err, failed))
	}
	return e
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s %s for %s: %s", e.Service, e.Operation, e.Subject, e.message)
}

// Unwrap returns the error of the SDK. Do not log its text.
func (e *Error) Unwrap() error {
	return e.cause
}

// Code returns the error code of AWS, or an empty string for other errors.
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// cause returns the text of an error of a call without a response, without attempts and request IDs.
func cause(err error, failed *smithy.OperationError) string {
	var send *smithyhttp.RequestSendError
	var request *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no response before the deadline"
	case errors.As(err, &request):
		host := request.URL
		if parsed, parseErr := url.Parse(request.URL); parseErr == nil {
			host = parsed.Host
		}
		return fmt.Sprintf("no response from %s: %v", host, request.Err)
	case errors.As(err, &send):
		return send.Err.Error()
	case failed != nil:
		return failed.Err.Error()
	}
	return err.Error()
}

// line returns the first line of a text, truncated to maxMessageLength.
func line(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.TrimSpace(s)
	if len(s) > maxMessageLength {
		s = strings.ToValidUTF8(s[:maxMessageLength], "") + "…"
	}
	return s
}
