package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// A server is away after probeFailures connection attempts without an answer. Packets to such a server get lost, so
	// without the probes each operation waits until its caller gives up, and other replicas may reach the database.
	probePeriod   = 2 * time.Second
	probeTimeout  = 2 * time.Second
	probeFailures = 2
)

// Reach makes operations fail at once while the servers of the database do not answer. A server that answers, even with
// a refusal, or that is slow, is not away.
type Reach struct {
	connect pgconn.DialFunc

	mu      sync.Mutex
	servers map[string]*target
}

// target is the state of one address.
type target struct {
	network  string
	conns    map[*reachConn]struct{}
	failures int
}

// NewReach returns a Reach without servers.
func NewReach() *Reach {
	return &Reach{connect: (&net.Dialer{}).DialContext, servers: map[string]*target{}}
}

// dial connects to a server. It returns an error at once if the server is away.
func (r *Reach) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network == "unix" {
		return r.connect(ctx, network, address)
	}
	// A server to which no connection was possible yet is probed too: a connection string may name several.
	r.mu.Lock()
	away := r.server(network, address).failures >= probeFailures
	r.mu.Unlock()
	if away {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s does not answer", address)}
	}
	inner, err := r.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := &reachConn{Conn: inner, reach: r, address: address}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server(network, address).conns[conn] = struct{}{}
	return conn, nil
}

// server returns the state of an address. The caller must hold mu.
func (r *Reach) server(network, address string) *target {
	if r.servers[address] == nil {
		r.servers[address] = &target{network: network, conns: map[*reachConn]struct{}{}}
	}
	return r.servers[address]
}

// reachConn is a connection that Reach can close.
type reachConn struct {
	net.Conn
	reach   *Reach
	address string
}

// Close closes the connection and forgets it.
func (c *reachConn) Close() error {
	c.reach.mu.Lock()
	if server := c.reach.servers[c.address]; server != nil {
		delete(server.conns, c)
		// Addresses of a name can change. One that is away is forgotten when it answers again.
		if len(server.conns) == 0 && server.failures == 0 {
			delete(c.reach.servers, c.address)
		}
	}
	c.reach.mu.Unlock()
	return c.Conn.Close()
}

// Away reports whether packets to the database get lost: a server does not answer, and no other one does.
func (r *Reach) Away() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	away := false
	for _, server := range r.servers {
		if server.failures < probeFailures {
			return false
		}
		away = true
	}
	return away
}

// run probes the servers with connections until ctx ends.
func (r *Reach) run(ctx context.Context) {
	wait.UntilWithContext(ctx, r.probeAll, probePeriod)
}

func (r *Reach) probeAll(ctx context.Context) {
	r.mu.Lock()
	networks := map[string]string{}
	for address, server := range r.servers {
		networks[address] = server.network
	}
	r.mu.Unlock()
	var probes sync.WaitGroup
	for address, network := range networks {
		probes.Go(func() { r.probe(ctx, network, address) })
	}
	probes.Wait()
}

func (r *Reach) probe(ctx context.Context, network, address string) {
	for {
		probing, cancel := context.WithTimeout(ctx, probeTimeout)
		conn, err := r.connect(probing, network, address)
		cancel()
		if err == nil {
			_ = conn.Close()
		}
		if ctx.Err() != nil || !r.mark(ctx, address, silent(err)) {
			return
		}
	}
}

// silent reports whether a connection attempt failed because nothing answered. A host that does not answer ARP, or that
// no route leads to, is silent too. The dialer may give up shortly before its context, so the context does not decide.
func silent(err error) bool {
	var failed net.Error
	return errors.As(err, &failed) && failed.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// mark records the result of a probe, and reports whether the next probe is due at once.
func (r *Reach) mark(ctx context.Context, address string, silent bool) (again bool) {
	r.mu.Lock()
	server := r.servers[address]
	if server == nil {
		r.mu.Unlock()
		return false
	}
	var closing []*reachConn
	before := server.failures
	switch {
	case silent && before < probeFailures:
		server.failures++
		if again = server.failures < probeFailures; !again {
			for conn := range server.conns {
				closing = append(closing, conn)
			}
		}
	case !silent:
		server.failures = 0
		if len(server.conns) == 0 {
			delete(r.servers, address)
		}
	}
	away := server.failures >= probeFailures
	r.mu.Unlock()
	for _, conn := range closing {
		_ = conn.Close()
	}
	logger := klog.FromContext(ctx).WithName("search-postgres")
	if away && before < probeFailures {
		logger.Info("PostgreSQL does not answer; searches and reports are refused until it does", "address", address, "closedConnections", len(closing))
	} else if !away && before >= probeFailures {
		logger.Info("PostgreSQL answers again", "address", address)
	}
	return again
}
