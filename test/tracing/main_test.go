package tracing

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

func TestMain(m *testing.M) { os.Exit(framework.RunReserved(m, 2, 1)) }

// fleet is a fleet whose programs export their spans to a collector.
type fleet struct {
	*framework.Fleet
	spans *collector
}

// Sampling rates per million of the programs. Programs without a rate record only the traces of callers that
// they trust.
const (
	respectCallers = 0
	recordAll      = 1_000_000
)

var sharedFleet = sync.OnceValues(func() (*fleet, error) {
	dir, err := framework.TempDir()
	if err != nil {
		return nil, err
	}
	spans, err := newCollector()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "shared")
	respecting, all := configArgument(dir, spans.address, respectCallers), configArgument(dir, spans.address, recordAll)
	f, err := framework.StartFleet(context.Background(), localhub.FleetOptions{
		Dir: dir, Clusters: []string{framework.Cluster1}, NoFsync: true,
		HubArgs: respecting, APIServerArgs: respecting,
		// The managed cluster does not trust the agent's sampling. The agent records every pass.
		ManagedArgs: all, AgentArgs: all,
	})
	if err != nil {
		return nil, errors.Join(err, spans.stop(context.Background()))
	}
	// The programs export their last spans when they stop.
	framework.StopAtEnd(f.Stop)
	framework.StopAtEnd(spans.stop)
	return &fleet{f, spans}, nil
})

// shared returns the fleet that all tests share.
func shared(t *testing.T) *fleet {
	t.Helper()
	framework.UseShared(t)
	return framework.Must(sharedFleet())(t)
}

// configArgument writes a TracingConfiguration and returns the flag that names it.
func configArgument(dir, endpoint string, rate int) []string {
	file := filepath.Join(dir, fmt.Sprintf("tracing-%d.yaml", rate))
	content := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: %d\n", endpoint, rate)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
		panic(err)
	}
	return []string{"--tracing-config-file=" + file}
}

// caller is a client that sends the trace context of a span which it does not export.
type caller struct {
	*versioned.Clientset
	trace, span string
}

// traced returns a client of the hub's administrator in a new trace, which is sampled or not.
func (f *fleet) traced(t *testing.T, sampled bool) *caller {
	t.Helper()
	return newCaller(t, f.Hub.AdminConfig(), sampled)
}

func newCaller(t *testing.T, config *rest.Config, sampled bool) *caller {
	t.Helper()
	ids := make([]byte, 24)
	_, _ = rand.Read(ids) // never fails
	c := &caller{trace: hex.EncodeToString(ids[:16]), span: hex.EncodeToString(ids[16:])}
	flags := "00"
	if sampled {
		flags = "01"
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return header{next, "00-" + c.trace + "-" + c.span + "-" + flags}
	})
	c.Clientset = framework.OCMClient(t, config, nil)
	return c
}

// header adds a traceparent to requests.
type header struct {
	http.RoundTripper
	traceparent string
}

func (h header) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("traceparent", h.traceparent)
	return h.RoundTripper.RoundTrip(request)
}
