package membership

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"

	"open-cluster-management.io/hub-apiserver/pkg/keepalive"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// reloadDelay is the time during which client-go may still use a certificate after its file has
// changed, plus a margin.
const reloadDelay = 2 * time.Second

type connection struct {
	config *rest.Config
	hub    *hubClients
	dialer *connrotation.Dialer
}

// connect returns clients with the credentials in the files. client-go reads the files of a
// certificate for each new connection. Open connections are tracked, so that they can be closed
// after a renewal.
func (r *Registrar) connect() (*connection, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(r.config.Dir, keyKubeconfig))
	if err != nil {
		return nil, fmt.Errorf("hub client: %w", err)
	}
	r.tune(config)
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: keepalive.DialTimeout, KeepAlive: 30 * time.Second}).DialContext)
	config.Dial = dialer.DialContext
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("hub client: %w", err)
	}
	shared := &rest.Config{
		Host: config.Host, APIPath: config.APIPath, Transport: transport, UserAgent: config.UserAgent,
		QPS: config.QPS, Burst: config.Burst, RateLimiter: config.RateLimiter, Timeout: config.Timeout,
		WarningHandler: config.WarningHandler, WarningHandlerWithContext: config.WarningHandlerWithContext,
	}
	hub, err := clientsFor(shared)
	if err != nil {
		return nil, err
	}
	return &connection{config: shared, hub: hub, dialer: dialer}, nil
}

func (c *connection) close() { c.dialer.CloseAll() }

func (r *Registrar) renewed(ctx context.Context, conn *connection, known *identity) error {
	if err := mirror(r.config.Dir, known); err != nil {
		return err
	}
	reconcile.Pause(ctx, reloadDelay, nil)
	conn.close()
	return nil
}
