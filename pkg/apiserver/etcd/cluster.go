package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/klog/v2"
)

const (
	dialTimeout      = 20 * time.Second
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second

	memberBackoff = time.Second
	memberConnect = 3 * time.Second
)

// Cluster is the connections to the etcd cluster in which a server stores objects. The stores of resources hide their
// clients, and use no transactions.
type Cluster struct {
	// Prefix begins the keys of the server.
	Prefix string
	// Client is closed by Close.
	Client *clientv3.Client
	// members contains a client of each member, by its URL. It connects soon after the member has started.
	members map[string]*clientv3.Client
}

// Connect returns connections to an etcd cluster. It does not wait for the cluster. If direct is true, the clients of
// single members do not use the dialer of config. The caller must call Close.
func Connect(config storagebackend.TransportConfig, prefix string, direct bool) (*Cluster, error) {
	client, err := newClient(config, config.ServerList)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Prefix: path.Join("/", prefix), Client: client, members: map[string]*clientv3.Client{}}
	soon := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: memberBackoff, MaxDelay: memberBackoff, Multiplier: 1}, MinConnectTimeout: memberConnect,
	})
	if direct {
		config.EgressLookup = nil
	}
	for _, member := range config.ServerList {
		ofMember, err := newClient(config, []string{member}, soon)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.members[member] = ofMember
	}
	return c, nil
}

func (c *Cluster) Close() error {
	errs := []error{c.Client.Close()}
	for _, client := range c.members {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// eachMember calls a function for all members in parallel, and returns the errors by the URLs of the members.
func (c *Cluster) eachMember(call func(member string, client *clientv3.Client) error) map[string]error {
	errs := map[string]error{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for member, client := range c.members {
		calls.Go(func() {
			err := call(member, client)
			mu.Lock()
			defer mu.Unlock()
			errs[member] = err
		})
	}
	calls.Wait()
	return errs
}

func newClient(config storagebackend.TransportConfig, servers []string, options ...grpc.DialOption) (*clientv3.Client, error) {
	out := clientv3.Config{
		Endpoints: servers, DialTimeout: dialTimeout,
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
				return dial(ctx, "tcp", hostOf(address))
			}))
		}
	}
	client, err := clientv3.New(out)
	if err != nil {
		return nil, fmt.Errorf("client of etcd: %w", err)
	}
	return client, nil
}

// hostOf returns the host and the port of the URL of a member. It returns what is no URL unchanged.
func hostOf(member string) string {
	parsed, err := url.Parse(member)
	if err != nil || !strings.Contains(member, "//") {
		return member
	}
	return parsed.Host
}

// MinimumVersion is the oldest release of etcd that a server accepts. Earlier releases lose events of watches after
// a compaction (etcd#17529), or send no progress notifications (etcd#17566), so the caches of the server would
// silently miss changes. Releases before 3.5.3 can also lose acknowledged writes.
const MinimumVersion = "3.5.13"

const (
	versionTimeout = 5 * time.Second
	versionPeriod  = 10 * time.Second
)

var minimumVersion = version.MustParseSemantic(MinimumVersion)

// UnusableError is the error of a server that must not serve its data.
type UnusableError string

func (e UnusableError) Error() string { return string(e) }

// CheckVersions returns an UnusableError if a member is too old, and false if one does not respond within some seconds.
func (c *Cluster) CheckVersions(ctx context.Context) (all bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	errs := c.eachMember(func(endpoint string, client *clientv3.Client) error { return checkVersion(ctx, client, endpoint) })
	var tooOld []error
	all = true
	for endpoint, err := range errs {
		if errors.As(err, new(UnusableError)) {
			tooOld = append(tooOld, err)
		} else if err != nil {
			klog.FromContext(ctx).Info("Cannot read the version of an etcd member yet", "endpoint", endpoint, "reason", err)
			all = false
		}
	}
	return all, errors.Join(tooOld...)
}

// AwaitVersions calls CheckVersions until all members have responded, a member is too old, or ctx ends.
func (c *Cluster) AwaitVersions(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, versionPeriod, false, c.CheckVersions)
}

func checkVersion(ctx context.Context, client *clientv3.Client, endpoint string) error {
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return err
	}
	found, err := version.ParseSemantic(strings.TrimSpace(status.Version))
	if err != nil || found.LessThan(minimumVersion) {
		return UnusableError(fmt.Sprintf("etcd member %s has version %s: Unsupported value: watches of releases before %s lose events; upgrade it to %s or later",
			endpoint, status.Version, MinimumVersion, MinimumVersion))
	}
	return nil
}
