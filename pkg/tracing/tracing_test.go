package tracing

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// recorder returns a provider that records all traces without a parent, and its finished spans.
func recorder(t *testing.T) (*sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return provider, spans
}

func TestParseParent(t *testing.T) {
	for text, want := range map[string]bool{
		"":      false,
		sampled: true,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00":            false, // not sampled
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":            false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":            false,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01":            false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff":            false,
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":            false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more":       false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n":          false,
		strings.Repeat("0", 1<<20):                                           false,
		strings.Replace(sampled, "-b7", "-\u00e9", 1):                        false,
		"00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01":            false,
		"  -0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":            false,
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-0123456789": false,
	} {
		got, valid := ParseParent(text)
		if valid != want || valid && (!got.IsRemote() || got.TraceID().String() != "0af7651916cd43dd8448eb211c80319c") {
			t.Errorf("ParseParent(%.60q) = %v, %t, want %t", text, got, valid, want)
		}
	}
}

func TestAnnotate(t *testing.T) {
	provider, _ := recorder(t)
	parent, _ := ParseParent(sampled)
	foreign := trace.ContextWithRemoteSpanContext(t.Context(), parent)
	recorded, span := provider.Tracer("").Start(t.Context(), "request")
	defer span.End()
	// A provider without tracing passes the trace context on.
	passed, _ := noop.NewTracerProvider().Tracer("").Start(foreign, "request")
	for name, test := range map[string]struct {
		ctx  context.Context
		want bool
	}{"recorded": {recorded, true}, "no span": {t.Context(), false}, "remote": {foreign, false}, "passed on": {passed, false}} {
		object := &metav1.ObjectMeta{Annotations: map[string]string{"trace": sampled, "mine": "kept"}}
		Annotate(test.ctx, object, "trace")
		value, set := object.Annotations["trace"]
		if set != test.want || object.Annotations["mine"] != "kept" {
			t.Errorf("%s: Annotate() = %v, want an annotation = %t", name, object.Annotations, test.want)
		}
		if got, valid := ParseParent(value); set && (!valid || got.SpanID() != span.SpanContext().SpanID()) {
			t.Errorf("%s: ParseParent(%q) = %v, %t, want the span %s", name, value, got, valid, span.SpanContext().SpanID())
		}
	}
}

func TestBudget(t *testing.T) {
	provider, spans := recorder(t)
	ctx, root := provider.Tracer("").Start(t.Context(), "root")
	limited, budget := WithBudget(ctx, 3)
	for range 10 {
		_, span := Start(limited, "child")
		End(span, "")
	}
	if got := len(spans.Ended()); got != 3 || budget.Omitted() != 7 {
		t.Errorf("ended spans = %d, omitted = %d, want 3 and 7", got, budget.Omitted())
	}
	root.End()
	_, late := Start(ctx, "late")
	late.End()
	if got := len(spans.Ended()); got != 4 {
		t.Errorf("ended spans = %d, want no span below an ended span", got)
	}
}

func TestTransport(t *testing.T) {
	provider, spans := recorder(t)
	var received []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		received = append(received, request.Header.Get("traceparent"))
	}))
	defer server.Close()
	client := &http.Client{Transport: Transport(provider)(http.DefaultTransport)}
	get := func(ctx context.Context, path string) {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, root := provider.Tracer("").Start(t.Context(), "root")
	limited, _ := WithBudget(ctx, 1)
	get(t.Context(), "/")
	get(ctx, "/"+strings.Repeat("n", maxURL))
	get(limited, "/")
	get(limited, "/")
	root.End()
	for i, traced := range []bool{false, false, true, false} {
		if (received[i] != "") != traced {
			t.Errorf("request %d: traceparent = %q, want one = %t", i, received[i], traced)
		}
	}
	if got := len(spans.Ended()); got != 2 {
		t.Errorf("ended spans = %d, want 2: the traced request and its parent", got)
	}
}

func TestReason(t *testing.T) {
	for want, err := range map[string]error{
		"":          nil,
		"Error":     errors.New("password=secret"),
		"Forbidden": apierrors.NewForbidden(schema.GroupResource{}, "name", errors.New("password=secret")),
	} {
		if got := Reason(err); got != want {
			t.Errorf("Reason(%v) = %q, want %q", err, got, want)
		}
	}
	chosen := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: "password=secret"}}
	if got := Reason(chosen); got != "Error" {
		t.Errorf("Reason(%v) = %q, want Error", chosen, got)
	}
}

func TestReadConfiguration(t *testing.T) {
	const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
	for content, want := range map[string]string{
		header: "",
		header + "endpoint: collector.observability:4317\nsamplingRatePerMillion: 100\n": "",
		strings.Replace(header, "/v1", "/v1beta1", 1):                                    "",
		header + "samplingRatePerMillion: 1000001\n":                                     "samplingRatePerMillion",
		header + "endpoint: https://collector:4317\n":                                    "endpoint",
		header + "rate: 1\n": "rate",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: []\n":           "TracingConfiguration",
		"apiVersion: apiserver.config.k8s.io/v9\nkind: TracingConfiguration\nsamplingRatePerMillion: 1": "v9",
	} {
		file := filepath.Join(t.TempDir(), "tracing.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadConfiguration(file)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("ReadConfiguration(%q) = %v, want an error with %q", content, err, want)
		}
	}
}

// TestShutdownEnds fails with the timeout of the test if Shutdown waits for the collector.
func TestShutdownEnds(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	endpoint, rate := silent.Addr().String(), int32(1_000_000)
	built, err := NewProvider(t.Context(), &tracingapi.TracingConfiguration{Endpoint: &endpoint, SamplingRatePerMillion: &rate}, Service{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	built.(*provider).timeout = 10 * time.Millisecond
	_, span := built.Tracer(Scope).Start(t.Context(), "last")
	span.End()
	if err := built.Shutdown(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown() = %v, want the end of its own deadline", err)
	}
}
