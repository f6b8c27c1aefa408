package tracing

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"
)

// shutdownTimeout bounds the export of the last spans. A collector that does not respond must not delay the
// end of the process.
const shutdownTimeout = 5 * time.Second

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict)
}()

// Service identifies the process in its spans.
type Service struct {
	Name, Instance, Version string
}

// ReadConfiguration reads a TracingConfiguration of apiserver.config.k8s.io, the format of kube-apiserver. It
// returns an error if the file contains unknown fields or invalid values.
func ReadConfiguration(file string) (*tracingapi.TracingConfiguration, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	config := &apiserver.TracingConfiguration{}
	if err := runtime.DecodeInto(codecs.UniversalDecoder(), content, config); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if errs := tracingapi.ValidateTracingConfiguration(&config.TracingConfiguration, nil, nil); len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errs.ToAggregate())
	}
	return &config.TracingConfiguration, nil
}

// NewProvider returns a provider that exports spans to the collector of a configuration. It does not connect to
// the collector before it has spans. The caller must shut it down, which takes at most 5 seconds.
func NewProvider(ctx context.Context, config *tracingapi.TracingConfiguration, service Service) (tracing.TracerProvider, error) {
	inner, err := tracing.NewProvider(ctx, config, nil, []resource.Option{resource.WithAttributes(
		attribute.String("service.name", service.Name),
		attribute.String("service.instance.id", service.Instance),
		attribute.String("service.version", service.Version),
	)})
	if err != nil {
		return nil, err
	}
	// The default provider of metrics keeps every instrument of the instrumented clients in memory.
	otel.SetMeterProvider(noop.NewMeterProvider())
	// The default handler does not write in the format of the log.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		klog.Background().Error(err, "Failed to export spans")
	}))
	return &provider{TracerProvider: inner, timeout: shutdownTimeout}, nil
}

type provider struct {
	tracing.TracerProvider
	timeout time.Duration
}

// Shutdown exports the remaining spans, until its own timeout at the latest.
func (p *provider) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.TracerProvider.Shutdown(ctx)
}

// maxURL limits the URLs in spans. Tenants choose names of objects.
const maxURL = 2048

// Transport returns a wrapper of transports. It records a span of each request with a context that has a
// recorded span, as far as the budget permits, and sends its trace context to the server. Other requests, such
// as those of informers, start no trace.
func Transport(provider trace.TracerProvider) transport.WrapperFunc {
	wrap := tracing.WrapperFor(provider)
	return func(next http.RoundTripper) http.RoundTripper {
		return &roundTripper{next: next, traced: wrap(next)}
	}
}

type roundTripper struct {
	next, traced http.RoundTripper
}

func (t *roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	if len(request.URL.Path)+len(request.URL.RawQuery) > maxURL || !recorded(request.Context()) {
		return t.next.RoundTrip(request)
	}
	return t.traced.RoundTrip(request)
}

// WrappedRoundTripper returns the wrapped transport.
func (t *roundTripper) WrappedRoundTripper() http.RoundTripper { return t.next }
