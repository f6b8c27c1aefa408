package clusterpermission

import (
	"context"
	"errors"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/util/wait"
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
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return !joined(), nil
	})
	if err != nil {
		t.Error(errors.Join(errors.New("join(traced) after the request = its span, want none"), err))
	}
}
