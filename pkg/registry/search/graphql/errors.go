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

// failure is an error of a resolver, with the reason as its code.
type failure struct {
	error
}

// Extensions are what clients decide by.
func (f failure) Extensions() map[string]any {
	return map[string]any{"code": string(apierrors.ReasonForError(f.error))}
}

// Unwrap returns the error itself.
func (f failure) Unwrap() error { return f.error }

func badRequest(format string, args ...any) error {
	return failure{apierrors.NewBadRequest(fmt.Sprintf(format, args...))}
}

// failed makes an API error one of GraphQL.
func failed(err error) error {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return err
	}
	return failure{err}
}

// queryErrors are an error as a response has it.
func queryErrors(err error) []*graphqlerrors.QueryError {
	out := graphqlerrors.Errorf("%s", err)
	var f failure
	if errors.As(err, &f) {
		out.Extensions = f.Extensions()
	}
	return []*graphqlerrors.QueryError{out}
}

const (
	// mostErrors bounds the errors of an answer, and mostLocations the places of each in the document.
	mostErrors    = 20
	mostLocations = 20
	// mostMessage bounds the message of an error, which may quote the document.
	mostMessage = 2 << 10
)

// someErrors are the first errors. There is one for every wrong token of a document, which may
// be many times as large as the document itself.
func someErrors(errs []*graphqlerrors.QueryError) []*graphqlerrors.QueryError {
	if more := len(errs) - mostErrors; more > 0 {
		errs = append(slices.Clip(errs[:mostErrors]), graphqlerrors.Errorf("%d more errors", more))
	}
	for _, err := range errs {
		err.Locations = err.Locations[:min(len(err.Locations), mostLocations)]
		if len(err.Message) > mostMessage {
			err.Message = strings.ToValidUTF8(err.Message[:mostMessage], "") + "..."
		}
	}
	return errs
}

// panics keeps what a panic says out of responses.
type panics struct{}

// LogPanic logs a panic of a resolver.
func (panics) LogPanic(ctx context.Context, value any) {
	klog.FromContext(ctx).Error(nil, "panic in a GraphQL resolver", "panic", value, "stack", string(debug.Stack()))
}

// MakePanicError is the error of the field.
func (panics) MakePanicError(context.Context, any) *graphqlerrors.QueryError {
	return graphqlerrors.Errorf("internal error")
}
