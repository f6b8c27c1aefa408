package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// The database is away after probeFailures probes without an answer of any of its servers.
	probePeriod   = 2 * time.Second
	probeTimeout  = 2 * time.Second
	probeFailures = 2
	// silenceTimeout is the time after which the kernel closes a connection whose packets get lost.
	silenceTimeout = probeFailures * probeTimeout
)

// Reach makes operations fail while packets to the database get lost: otherwise each of them waits until its caller gives
// up, and other replicas may reach the database. The kernel closes connections on which nothing is acknowledged, and new
// ones fail at once. A server that answers, even with a refusal, or that is slow, is not away.
type Reach struct {
	connect  pgconn.DialFunc
	failures atomic.Int32
}

// NewReach returns a Reach of a database that answers.
func NewReach() *Reach {
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probePeriod, Interval: time.Second, Count: int((silenceTimeout - probePeriod) / time.Second)},
		Control:         boundSilence,
	}
	return &Reach{connect: dialer.DialContext}
}

// dial connects to a server. It returns an error at once if the database is away.
func (r *Reach) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if r.Away() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s does not answer", address)}
	}
	return r.connect(ctx, network, address)
}

// Away reports whether packets to all servers of the database get lost.
func (r *Reach) Away() bool { return r.failures.Load() >= probeFailures }

// run probes the servers of the database until ctx ends.
func (r *Reach) run(ctx context.Context, config *pgx.ConnConfig) {
	type server struct{ network, address string }
	servers := sets.Set[server]{}
	for _, known := range append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port}}, config.Fallbacks...) {
		network, address := pgconn.NetworkAddress(known.Host, known.Port)
		servers.Insert(server{network, address})
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		answered := false
		for one := range servers {
			answered = answered || r.probe(ctx, one.network, one.address)
		}
		if ctx.Err() == nil {
			r.mark(ctx, answered)
		}
	}, probePeriod)
}

// probe reports whether a server answers.
func (r *Reach) probe(ctx context.Context, network, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := r.connect(ctx, network, address)
	if err == nil {
		_ = conn.Close()
	}
	return !silent(err)
}

// silent reports whether a connection attempt failed because nothing answered. A host that does not answer ARP, or that
// no route leads to, is silent too. The dialer may give up shortly before its context, so the context does not decide. A
// name server that does not answer is not the database.
func silent(err error) bool {
	var failed net.Error
	var name *net.DNSError
	return errors.As(err, &failed) && failed.Timeout() && !errors.As(err, &name) ||
		errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// mark records the result of a probe of all servers.
func (r *Reach) mark(ctx context.Context, answered bool) {
	logger := klog.FromContext(ctx).WithName("search-postgres")
	switch {
	case !answered:
		if r.failures.Add(1) == probeFailures {
			logger.Info("PostgreSQL does not answer; searches and reports are refused until it does")
		}
	case r.failures.Swap(0) >= probeFailures:
		logger.Info("PostgreSQL answers again")
	}
}
