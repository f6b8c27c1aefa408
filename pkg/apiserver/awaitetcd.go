package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
)

const (
	awaitPeriod   = time.Second
	awaitShutdown = 2 * time.Second
)

// AwaitEtcd returns when every etcd in which the server stores objects responds, or when ctx ends. Meanwhile it serves
// the health checks, and answers all other requests with status 503: New fails without etcd, and the kubelet starts a
// container that fails again and again only every five minutes.
func (c CompletedConfig) AwaitEtcd(ctx context.Context) (err error) {
	if c.extra.Embedded != nil || c.generic.SecureServing == nil {
		return nil
	}
	migrator, err := c.migrator(Resources(Dependencies{}))
	if err != nil {
		return err
	}
	defer func() { _ = migrator.Close() }() // the result of the probes is known
	members, err := migrator.Members(false)
	if err != nil {
		return err
	}
	defer closeMembers(ctx, members)
	clusters := migrator.Clusters()
	var missing atomic.Pointer[error]
	responds := func(ctx context.Context) (bool, error) {
		err := etcd.Unavailable(ctx, clusters, members)
		missing.Store(&err)
		return err == nil, nil
	}
	if done, _ := responds(ctx); done || ctx.Err() != nil {
		return ctx.Err()
	}
	klog.FromContext(ctx).Error(*missing.Load(), "The server is not ready until etcd responds")
	stop, err := c.serveHealth(func(*http.Request) error { return *missing.Load() })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := wait.PollUntilContextCancel(ctx, awaitPeriod, false, responds); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Etcd responds")
	return nil
}

// serveHealth serves the health checks on the listener of the server, until stop is called. They have the names of the
// checks of the library, so that the probes of the kubelet can exclude them.
func (c CompletedConfig) serveHealth(etcdCheck func(*http.Request) error) (stop func() error, err error) {
	listener, ok := c.generic.SecureServing.Listener.(deadlineListener)
	if !ok {
		return nil, fmt.Errorf("the listener %T has no deadline", c.generic.SecureServing.Listener)
	}
	checks := []healthz.HealthChecker{healthz.PingHealthz, healthz.NamedCheck("etcd", etcdCheck)}
	mux := http.NewServeMux()
	healthz.InstallHandler(mux, checks...)
	healthz.InstallLivezHandler(mux, checks...)
	healthz.InstallReadyzHandler(mux, checks...)
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		refuse(w, req, c.generic.Serializer, "the server is not ready: etcd does not respond")
	})
	serving := *c.generic.SecureServing
	serving.Listener, serving.ClientCA, serving.SNICerts = lentListener{listener}, nil, nil
	// A certificate that is reloaded from its file can be served only once.
	cert, key := serving.Cert.CurrentCertKeyContent()
	if serving.Cert, err = dynamiccertificates.NewStaticCertKeyContent("start", cert, key); err != nil {
		return nil, err
	}
	stopping := make(chan struct{})
	stopped, closed, err := serving.Serve(mux, awaitShutdown, stopping)
	if err != nil {
		return nil, err
	}
	return func() error {
		close(stopping)
		<-stopped
		<-closed
		return listener.SetDeadline(time.Time{})
	}, nil
}

type deadlineListener interface {
	net.Listener
	SetDeadline(time.Time) error
}

// lentListener stays open when it is closed, so that the server can use it afterwards.
type lentListener struct{ deadlineListener }

// Close ends Accept.
func (l lentListener) Close() error { return l.SetDeadline(time.Now()) }
