package permissions

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"open-cluster-management.io/hub-apiserver/test/await"
)

func TestControllerJoinsRunningRequest(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	request, end := context.WithCancel(t.Context())
	defer end()
	request, span := provider.Tracer("").Start(request, "request")
	defer span.End()
	r := &requests{}
	r.add(t.Context(), "untraced")
	r.add(request, "traced")

	joined := func() bool { return trace.SpanFromContext(r.join(t.Context(), "traced")) == span }
	if trace.SpanFromContext(r.join(t.Context(), "untraced")).IsRecording() {
		t.Error("join(untraced) = a recorded span, want none")
	}
	if !joined() {
		t.Error("join(traced) has another span than the request, want the same")
	}
	other, own := provider.Tracer("").Start(t.Context(), "other request")
	defer own.End()
	if got := trace.SpanFromContext(r.join(other, "traced")); got != own {
		t.Errorf("join() in a context with a span = %v, want the same span", got)
	}

	end()
	await.True(t, "join(traced) after the request returns no span", func() bool { return !joined() })
}
