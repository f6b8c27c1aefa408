package tracing

import (
	"context"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// Scope is the instrumentation scope of the spans.
	Scope = "open-cluster-management.io/hub-apiserver"
	// maxText limits texts in attributes. Tenants choose names of objects.
	maxText = 256
)

// Budget limits the number of spans below a span.
type Budget struct {
	left, omitted atomic.Int64
}

type budgetKey struct{}

// WithBudget returns a context in which at most a number of spans are recorded, and the budget, which counts
// the spans that are omitted. It does nothing if the context has no recorded span.
func WithBudget(ctx context.Context, spans int) (context.Context, *Budget) {
	b := &Budget{}
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, b
	}
	b.left.Store(int64(spans))
	return context.WithValue(ctx, budgetKey{}, b), b
}

// Omitted returns the number of spans that exceeded the budget.
func (b *Budget) Omitted() int { return int(b.omitted.Load()) }

// recorded reports whether a span in a context is recorded, and takes it from the budget.
func recorded(ctx context.Context) bool {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return false
	}
	b, limited := ctx.Value(budgetKey{}).(*Budget)
	if !limited || b.left.Add(-1) >= 0 {
		return true
	}
	b.omitted.Add(1)
	return false
}

// Start starts a child of the span in a context. If that span is not recorded, or the budget of the context is
// used up, the child is not recorded either.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if !recorded(ctx) {
		return ctx, noop.Span{}
	}
	tracer := trace.SpanFromContext(ctx).TracerProvider().Tracer(Scope)
	return tracer.Start(ctx, name, trace.WithAttributes(attributes...))
}

// End ends a span. An empty reason means success. Other reasons must not depend on the content of objects, as
// texts of errors do.
func End(span trace.Span, reason string) {
	if reason != "" {
		span.SetStatus(codes.Error, reason)
	}
	span.End()
}

// reasons are the reasons of Kubernetes. Webhooks may return any other text as the reason.
var reasons = sets.New(
	metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists,
	metav1.StatusReasonConflict, metav1.StatusReasonGone, metav1.StatusReasonInvalid, metav1.StatusReasonServerTimeout,
	metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests, metav1.StatusReasonBadRequest, metav1.StatusReasonRequestEntityTooLarge,
	metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable,
)

// Reason returns the reason of an API error, "Error" for other errors, and an empty string for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	if reason := apierrors.ReasonForError(err); reasons.Has(reason) {
		return string(reason)
	}
	return "Error"
}

// Text returns an attribute with the first 256 bytes of a text.
func Text(key, value string) attribute.KeyValue {
	if len(value) > maxText {
		value = strings.ToValidUTF8(value[:maxText], "")
	}
	return attribute.String(key, value)
}
