package storagemigration

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

const (
	dialTimeout      = 20 * time.Second
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
)

// newClient returns a client of an etcd in which the server stores objects. It does not wait for a
// connection. The store of a resource hides its client, and has neither leases nor transactions over
// several keys.
func newClient(config storagebackend.TransportConfig, options ...grpc.DialOption) (*clientv3.Client, error) {
	out := clientv3.Config{
		Endpoints: config.ServerList, DialTimeout: dialTimeout,
		DialKeepAliveTime: keepaliveTime, DialKeepAliveTimeout: keepaliveTimeout,
		DialOptions: options,
	}
	if config.CertFile != "" || config.KeyFile != "" || config.TrustedCAFile != "" {
		info := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}
		var err error
		if out.TLS, err = info.ClientConfig(); err != nil {
			return nil, fmt.Errorf("TLS of etcd: %w", err)
		}
	}
	if config.EgressLookup != nil {
		dial, err := config.EgressLookup(egressselector.Etcd.AsNetworkContext())
		if err != nil {
			return nil, fmt.Errorf("egress to etcd: %w", err)
		}
		if dial != nil {
			out.DialOptions = append(out.DialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				if strings.Contains(address, "//") {
					parsed, err := url.Parse(address)
					if err != nil {
						return nil, err
					}
					address = parsed.Host
				}
				return dial(ctx, "tcp", address)
			}))
		}
	}
	client, err := clientv3.New(out)
	if err != nil {
		return nil, fmt.Errorf("client of etcd: %w", err)
	}
	return client, nil
}
