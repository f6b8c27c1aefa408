package tracing

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector receives spans with OTLP over gRPC.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	address string
	server  *grpc.Server
	served  chan error

	mu    sync.Mutex
	spans []span
}

// span is a span with the name of its service.
type span struct {
	service string
	*tracev1.Span
}

func (s span) trace() string  { return hex.EncodeToString(s.TraceId) }
func (s span) id() string     { return hex.EncodeToString(s.SpanId) }
func (s span) parent() string { return hex.EncodeToString(s.ParentSpanId) }
func (s span) String() string { return s.service + ": " + s.Name }

// attribute returns the text of an attribute, or an empty string.
func (s span) attribute(key string) string { return text(s.Attributes, key) }

func text(attributes []*commonv1.KeyValue, key string) string {
	for _, attribute := range attributes {
		if attribute.Key == key {
			return attribute.Value.GetStringValue()
		}
	}
	return ""
}

// number returns the value of an integer attribute, or 0.
func (s span) number(key string) int64 {
	for _, attribute := range s.Attributes {
		if attribute.Key == key {
			return attribute.Value.GetIntValue()
		}
	}
	return 0
}

func newCollector() (*collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{address: listener.Addr().String(), server: grpc.NewServer(), served: make(chan error, 1)}
	collectorv1.RegisterTraceServiceServer(c.server, c)
	go func() { c.served <- c.server.Serve(listener) }()
	return c, nil
}

func (c *collector) stop(context.Context) error {
	c.server.Stop()
	return <-c.served
}

// Export implements the service.
func (c *collector) Export(_ context.Context, request *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		service := text(resource.Resource.GetAttributes(), "service.name")
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, span{service, s})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// all returns the spans that match.
func (c *collector) all(matches func(span) bool) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []span
	for _, s := range c.spans {
		if matches(s) {
			out = append(out, s)
		}
	}
	return out
}

// of returns the spans of a trace.
func (c *collector) of(trace string) []span {
	return c.all(func(s span) bool { return s.trace() == trace })
}

// expected is a span that a trace must contain below another one.
type expected struct {
	service string
	// name is the beginning of the name.
	name string
	// url is a part of the attribute url.full, if it is not empty.
	url string
	// below is the index of an expected span among the ancestors. The caller is -1.
	below int
}

// contains returns nil if a trace of a caller contains the expected spans, and all ancestors of its spans.
func (c *collector) contains(by *caller, wants []expected) error {
	spans := c.of(by.trace)
	known := map[string]span{}
	for _, s := range spans {
		known[s.id()] = s
	}
	var errs []error
	found := make([]string, len(wants))
	for i, want := range wants {
		ancestor := by.span
		if want.below >= 0 {
			ancestor = found[want.below]
		}
		at := slices.IndexFunc(spans, func(s span) bool {
			return s.service == want.service && strings.HasPrefix(s.Name, want.name) && strings.Contains(s.attribute("url.full"), want.url) &&
				below(known, s, ancestor)
		})
		if at < 0 {
			errs = append(errs, fmt.Errorf("no span %s: %s %s", want.service, want.name, want.url))
			continue
		}
		found[i] = spans[at].id()
	}
	for _, s := range spans {
		if s.parent() != by.span && known[s.parent()].Span == nil {
			errs = append(errs, fmt.Errorf("the parent of span %s is not exported", s))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, fmt.Errorf("spans = %v", spans))
	}
	return errors.Join(errs...)
}

// below reports whether a span has an ancestor.
func below(known map[string]span, s span, ancestor string) bool {
	for range known {
		if s.parent() == ancestor {
			return ancestor != ""
		}
		next, found := known[s.parent()]
		if !found {
			return false
		}
		s = next
	}
	return false
}
