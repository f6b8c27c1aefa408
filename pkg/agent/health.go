package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of client-go's requests and queues
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/klog/v2"
)

// stopTimeout bounds the requests in flight when the agent stops.
const stopTimeout = 5 * time.Second

// serveHealth serves health checks and metrics until ctx ends.
func (a *Agent) serveHealth(ctx context.Context) error {
	if a.config.HealthBindAddress == "" || a.config.HealthBindAddress == "0" {
		return nil
	}
	mux := http.NewServeMux()
	alive := func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /livez", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := a.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		alive(w, r)
	})
	mux.Handle("GET /metrics", legacyregistry.Handler())

	listener, err := net.Listen("tcp", a.config.HealthBindAddress)
	if err != nil {
		return fmt.Errorf("--health-bind-address: %w", err)
	}
	klog.FromContext(ctx).Info("Serving health checks and metrics", "address", listener.Addr().String())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(stopCtx) != nil {
			_ = server.Close()
		}
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("health checks: %w", err)
	}
	<-stopped
	return nil
}
