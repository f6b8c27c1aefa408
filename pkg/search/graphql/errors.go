package graphql

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	graphqlerrors "github.com/graph-gophers/graphql-go/errors"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// failure is an error of a resolver whose code is its reason.
type failure struct {
	error
}

// Extensions returns the code.
func (f failure) Extensions() map[string]any {
	return map[string]any{"code": string(apierrors.ReasonForError(f.error))}
}

// Unwrap returns the API error.
func (f failure) Unwrap() error { return f.error }

func badRequest(format string, args ...any) error {
	return failure{apierrors.NewBadRequest(fmt.Sprintf(format, args...))}
}

// failed turns an API error into a GraphQL error.
func failed(err error) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return err
	}
	return failure{err}
}

// queryErrors returns the errors of a response for an error.
func queryErrors(err error) []*graphqlerrors.QueryError {
	out := graphqlerrors.Errorf("%s", err)
	var f failure
	if errors.As(err, &f) {
		out.Extensions = f.Extensions()
	}
	return []*graphqlerrors.QueryError{out}
}

const (
	// maxErrors bounds the errors of a response. maxLocations bounds the locations of each error.
	maxErrors    = 20
	maxLocations = 20
	// maxMessage bounds the message of an error, which may quote the document.
	maxMessage = 2 << 10
)

// someErrors returns the first errors, shortened. Each wrong token has an error, so all errors
// could be many times as large as the document.
func someErrors(errs []*graphqlerrors.QueryError) []*graphqlerrors.QueryError {
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(slices.Clip(errs[:maxErrors]), graphqlerrors.Errorf("%d more errors", more))
	}
	for _, err := range errs {
		err.Locations = err.Locations[:min(len(err.Locations), maxLocations)]
		if len(err.Message) > maxMessage {
			err.Message = strings.ToValidUTF8(err.Message[:maxMessage], "") + "..."
		}
	}
	return errs
}

// panics ensures that responses do not contain the values of panics.
type panics struct{}

// LogPanic logs a panic of a resolver.
func (panics) LogPanic(ctx context.Context, value any) {
	klog.FromContext(ctx).Error(nil, "Panic in a GraphQL resolver", "panic", value, "stack", string(debug.Stack()))
}

// MakePanicError returns the error for the field.
func (panics) MakePanicError(context.Context, any) *graphqlerrors.QueryError {
	return graphqlerrors.Errorf("internal error")
}
