package tracing

import (
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/client-go/transport"
	"k8s.io/component-base/tracing"
)

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
