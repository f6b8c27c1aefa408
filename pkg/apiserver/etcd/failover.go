package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
)

const (
	// A member is silent after probeFailures probes without an answer. The etcd client of the library notices it only
	// after 40 seconds, and until then sends it a share of all requests.
	probePeriod   = 2 * time.Second
	probeTimeout  = 2 * time.Second
	probeFailures = 2
	// dialPeriod is the interval at which a new connection looks whether its member responds again.
	dialPeriod = 200 * time.Millisecond
	probeKey   = "health"
)

// Failover makes the clients of etcd clusters use the members that respond. If a member does not respond while
// another one of its cluster does, it closes the connections to it. A process that is stopped, or a link that loses all packets,
// otherwise looks like a member that has nothing to send. New connections to a member wait until it responds: the
// client of etcd waits up to two minutes after it has failed to connect.
type Failover struct {
	mu sync.Mutex
	// open contains the connections by the address of the member.
	open map[string]*connrotation.ConnectionTracker
	// silent contains the addresses of members that do not respond.
	silent sets.Set[string]
}

func NewFailover() *Failover {
	return &Failover{open: map[string]*connrotation.ConnectionTracker{}, silent: sets.New[string]()}
}

// Redundant reports whether the servers are several members that a Failover can distinguish.
func Redundant(servers []string) bool {
	for _, server := range servers {
		if !strings.HasPrefix(server, "https://") && !strings.HasPrefix(server, "http://") {
			return false
		}
	}
	return len(servers) > 1
}

// Lookup returns the dialer of all connections to etcd. It is an egressselector.Lookup.
func (f *Failover) Lookup(egressselector.NetworkContext) (utilnet.DialFunc, error) {
	return f.dial, nil
}

func (f *Failover) dial(ctx context.Context, network, address string) (net.Conn, error) {
	err := wait.PollUntilContextCancel(ctx, dialPeriod, true, func(context.Context) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return !f.silent.Has(address), nil
	})
	if err != nil {
		return nil, fmt.Errorf("the etcd member %s does not respond: %w", address, err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return f.connections(address).Track(conn), nil
}

// connections returns the open connections to an address.
func (f *Failover) connections(address string) *connrotation.ConnectionTracker {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[address] == nil {
		f.open[address] = connrotation.NewConnectionTracker()
	}
	return f.open[address]
}

// Run probes the members of the etcd cluster until ctx ends. Connect must have made the clients of members direct. Run calls
// isolated when the last member has stopped responding.
func (f *Failover) Run(ctx context.Context, cluster *Cluster, isolated func()) {
	failures, alone := map[string]int{}, 0
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		silence := cluster.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		for member, err := range silence {
			if failures[member]++; err == nil {
				failures[member] = 0
			}
			f.mu.Lock()
			if f.silent.Delete(hostOf(member)); failures[member] >= probeFailures {
				f.silent.Insert(hostOf(member))
			}
			f.mu.Unlock()
		}
		if silent(silence) {
			// The reason may be this process, and there is no better connection.
			if alone++; alone == probeFailures {
				klog.FromContext(ctx).Info("No member of an etcd cluster responds; ending all watches, so that clients continue at another replica", "members", cluster.Client.Endpoints())
				isolated()
			}
			return
		}
		for member := range silence {
			if failures[member] < probeFailures {
				continue
			}
			f.connections(hostOf(member)).CloseAll()
			if failures[member] == probeFailures || alone > 0 {
				klog.FromContext(ctx).Info("An etcd member does not respond; using the others", "member", member)
			}
		}
		alone = 0
	}, probePeriod)
}

func silent(silence map[string]error) bool {
	return !slices.Contains(slices.Collect(maps.Values(silence)), nil)
}

// Unavailable returns an error if no member of the cluster responds.
func (c *Cluster) Unavailable(ctx context.Context) error {
	silence := c.probe(ctx)
	if !silent(silence) {
		return nil
	}
	servers := c.Client.Endpoints()
	return fmt.Errorf("etcd %s does not respond: %w", strings.Join(servers, ","), silence[servers[0]])
}

// probe returns for each member nil if it responds with the current state, which requires the leader of the cluster, or
// the reason why it does not.
func (c *Cluster) probe(ctx context.Context) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.eachMember(func(_ string, client *clientv3.Client) error {
		if _, err := client.Get(ctx, probeKey, clientv3.WithCountOnly()); !answered(err) {
			return err
		}
		return nil
	})
}

// answered reports whether a result is an answer of the member, which can be an error such as a missing permission.
func answered(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Canceled:
		return false
	default:
		return true
	}
}
