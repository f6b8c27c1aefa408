package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	traceparentKey = "traceparent"
	// parentLength is the length of a traceparent of version 00.
	parentLength = len("00-00000000000000000000000000000000-0000000000000000-00")
)

// Parent returns the W3C traceparent of the span in a context, or an empty string if the span is not recorded.
// A server without tracing passes the traceparent of its callers on, but does not record a span.
func Parent(ctx context.Context) string {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() || !span.SpanContext().IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentKey]
}

// Annotate sets an annotation of an object to the W3C traceparent of the span in a context. If the span is not
// recorded, it removes the annotation, which belongs to an earlier trace.
func Annotate(ctx context.Context, object *metav1.ObjectMeta, annotation string) {
	if parent := Parent(ctx); parent != "" {
		metav1.SetMetaDataAnnotation(object, annotation, parent)
	} else {
		delete(object.Annotations, annotation)
	}
}

// ParseParent returns the span context in a W3C traceparent of version 00, or false if the text is anything
// else or the trace is not sampled.
func ParseParent(text string) (trace.SpanContext, bool) {
	if len(text) != parentLength {
		return trace.SpanContext{}, false
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparentKey: text})
	parent := trace.SpanContextFromContext(ctx)
	return parent, parent.IsValid() && parent.IsSampled()
}
