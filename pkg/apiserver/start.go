package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
)

const (
	awaitPeriod   = time.Second
	awaitShutdown = 2 * time.Second
)

// AwaitData returns the data when they can be served. It returns an error if this server must not serve them, or if ctx ends.
// Meanwhile it serves the health checks, and answers all other requests with status 503: New fails without etcd, and the
// kubelet starts a container that fails again and again only every five minutes.
func (c CompletedConfig) AwaitData(ctx context.Context) (*Data, error) {
	data, err := c.newData()
	if err != nil {
		return nil, err
	}
	var problem atomic.Pointer[error]
	stop := func() error { return nil }
	err = wait.PollUntilContextCancel(ctx, awaitPeriod, true, func(ctx context.Context) (_ bool, failed error) {
		err := data.check(ctx)
		before := problem.Swap(&err)
		if err == nil || mustNotServe(err) || ctx.Err() != nil {
			return err == nil, err
		}
		if before == nil || (*before).Error() != err.Error() {
			klog.FromContext(ctx).Error(err, "The server is not ready: it cannot check its data in etcd yet")
		}
		if before == nil {
			stop, failed = c.serveHealth(func() error { return *problem.Load() })
		}
		return false, failed
	})
	if err = errors.Join(err, stop()); err != nil {
		return nil, errors.Join(err, closeEtcd(data.etcd))
	}
	return data, nil
}

// serveHealth serves the health checks on the listener of the server, until stop is called. That of etcd has the name of the
// check of the library, so that the probes of the kubelet can exclude it.
func (c CompletedConfig) serveHealth(problem func() error) (stop func() error, err error) {
	stop = func() error { return nil }
	listener, ok := c.generic.SecureServing.Listener.(*net.TCPListener)
	if !ok {
		return stop, fmt.Errorf("the listener %T is not of TCP", c.generic.SecureServing.Listener)
	}
	etcdCheck := healthz.NamedCheck("etcd", func(*http.Request) error {
		if err := problem(); errors.As(err, new(etcdError)) {
			return err
		}
		return nil
	})
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, healthz.PingHealthz, etcdCheck)
	healthz.InstallLivezHandler(mux, healthz.PingHealthz, etcdCheck)
	healthz.InstallReadyzHandler(mux, healthz.PingHealthz, etcdCheck, healthz.NamedCheck("data", func(*http.Request) error { return problem() }))
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		err := apierrors.NewServiceUnavailable("the server is not ready: it has not yet checked its data in etcd")
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(awaitPeriod / time.Second)}
		responsewriters.ErrorNegotiated(err, c.generic.Serializer, schema.GroupVersion{Version: "v1"}, w, req)
	})
	serving := *c.generic.SecureServing
	serving.Listener, serving.ClientCA, serving.SNICerts = lentListener{listener}, nil, nil
	// A certificate that is reloaded from its file can be served only once.
	cert, key := serving.Cert.CurrentCertKeyContent()
	if serving.Cert, err = dynamiccertificates.NewStaticCertKeyContent("start", cert, key); err != nil {
		return stop, err
	}
	stopping := make(chan struct{})
	stopped, closed, err := serving.Serve(mux, awaitShutdown, stopping)
	if err != nil {
		return stop, err
	}
	return func() error {
		close(stopping)
		<-stopped
		<-closed
		return listener.SetDeadline(time.Time{})
	}, nil
}

// lentListener stays open when it is closed, so that the server can use it afterwards.
type lentListener struct{ *net.TCPListener }

// Close ends Accept.
func (l lentListener) Close() error { return l.SetDeadline(time.Now()) }
