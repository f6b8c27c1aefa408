package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/klog/v2"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

const (
	awaitPeriod   = time.Second
	awaitShutdown = 2 * time.Second
)

// connectEtcd returns connections to every etcd in which rows are stored. The first is the one without
// --etcd-servers-overrides. If direct is true, the clients of single members do not use the dialer of the stores.
func connectEtcd(rows []definition.Resource, getter generic.RESTOptionsGetter, direct bool) (*etcd.Clusters, error) {
	// No resource has an empty name, so these are the options without overrides.
	common, err := getter.GetRESTOptions(schema.GroupResource{}, nil)
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	transport := common.StorageConfig.Transport
	clusters := [][]string{transport.ServerList}
	for _, row := range rows {
		for _, name := range row.InStorage() {
			options, err := getter.GetRESTOptions(name, row.New())
			if err != nil {
				return nil, fmt.Errorf("storage of %s: %w", name, err)
			}
			servers := options.StorageConfig.Transport.ServerList
			if !slices.ContainsFunc(clusters, func(known []string) bool { return slices.Equal(known, servers) }) {
				clusters = append(clusters, servers)
			}
		}
	}
	return etcd.Connect(transport, common.StorageConfig.Prefix, clusters, direct)
}

// storedVersions returns the versions in which rows are stored. It includes rows that the server does not serve, because a
// later release may serve them.
func storedVersions(rows []definition.Resource) []etcd.StoredVersions {
	var out []etcd.StoredVersions
	for _, row := range rows {
		for _, name := range row.InStorage() {
			out = append(out, etcd.StoredVersions{
				Resource: name.String(), Stored: row.StoredVersion().String(), Readable: row.ReadableVersions(scheme.Scheme),
			})
		}
	}
	return out
}

// clusterStore returns a function that opens the store of ManagedClusters without a cache.
func clusterStore(rows []definition.Resource, getter generic.RESTOptionsGetter) func() (storage.Interface, factory.DestroyFunc, error) {
	name := clusterv1.Resource("managedclusters")
	row := &rows[slices.IndexFunc(rows, func(row definition.Resource) bool { return row.GroupResource() == name })]
	return func() (storage.Interface, factory.DestroyFunc, error) {
		return row.OpenStorage(scheme.Codecs, getter, name)
	}
}

// checkEtcdVersions returns an error if a member of an etcd cluster is too old. It does not wait for members that do
// not respond: cancel stops the server if one of them turns out to be too old.
func (s *Server) checkEtcdVersions(ctx context.Context, cancel context.CancelCauseFunc) error {
	silent, err := s.etcd.CheckVersions(ctx)
	if err != nil || len(silent) == 0 {
		return err
	}
	s.running.Go(func() {
		if err := s.etcd.AwaitVersions(ctx, silent); err != nil {
			cancel(err)
		}
	})
	return nil
}

func (s *Server) closeEtcd() {
	if err := s.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		klog.Background().Error(err, "Failed to close the connections to etcd")
	}
}

// AwaitEtcd returns when every etcd in which the server stores objects responds, or when ctx ends. Meanwhile it serves
// the health checks, and answers all other requests with status 503: New fails without etcd, and the kubelet starts a
// container that fails again and again only every five minutes.
func (c CompletedConfig) AwaitEtcd(ctx context.Context) (err error) {
	if c.extra.Embedded != nil || c.generic.SecureServing == nil {
		return nil
	}
	clusters, err := connectEtcd(Resources(Dependencies{}), c.generic.RESTOptionsGetter, c.extra.EtcdFailover != nil)
	if err != nil {
		return err
	}
	defer func() { _ = clusters.Close() }() // the result of the probes is known
	var missing atomic.Pointer[error]
	responds := func(ctx context.Context) (bool, error) {
		err := clusters.Unavailable(ctx)
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
