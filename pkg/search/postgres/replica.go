package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// replicaTimeout bounds a connection attempt to a replica and each of its checks.
	replicaTimeout = 2 * time.Second
	// maxCheckInterval is the maximum interval between checks of a replica.
	maxCheckInterval = time.Second
)

// database is a server that answers reads: the primary or a replica.
type database struct {
	engine *Engine
	pool   *pgxpool.Pool
	// catalog contains the clusters and classes that this process has read.
	catalog catalog
	// selections caches selections by scope and query.
	selections *lru.Cache
	// replica is nil for the primary.
	replica *replica
}

func newDatabase(e *Engine, pool *pgxpool.Pool) *database {
	return &database{engine: e, pool: pool, selections: lru.New(selectionsKept)}
}

// replica is a read replica of the database. Searches use it as long as it is known to contain all reports that were
// acknowledged up to a moment within the bound.
//
// A check reads the position of the primary's write-ahead log, and then the position that the replica has replayed.
// When the replica has passed a position of the primary, it contains everything that was acknowledged before that
// position was read. So no clock of another machine is involved, and a replica of an idle primary is up to date.
type replica struct {
	*database
	// checks is the pool of the only connection for checks, so that they do not wait for searches.
	checks *pgxpool.Pool
	host   string
	port   uint16

	mu sync.Mutex
	// responding has ended unless the replica responds.
	responding context.Context
	end        context.CancelFunc
	// fresh is the moment up to which the replica contains all reports.
	fresh time.Time
}

// mark is a position in the write-ahead log of the primary.
type mark struct {
	read     time.Time
	position int64
}

// openReplicas returns the replicas, without connecting to them.
func (e *Engine) openReplicas(ctx context.Context) error {
	for i, dsn := range e.options.ReplicaDSNs {
		options := e.options
		options.DSN = dsn
		options.Reach = nil // each replica has checks of its own
		config, err := options.readConfig()
		if err != nil {
			return fmt.Errorf("replica %d: %w", i+1, err)
		}
		config.ConnConfig.ConnectTimeout = replicaTimeout
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return fmt.Errorf("replica %d: %w", i+1, err)
		}
		r := &replica{database: newDatabase(e, pool), host: config.ConnConfig.Host, port: config.ConnConfig.Port}
		r.database.replica = r
		r.responding, r.end = context.WithCancel(ctx)
		r.end()
		e.replicas = append(e.replicas, r)
		config = config.Copy()
		config.MaxConns = 1
		if r.checks, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return fmt.Errorf("replica %d: %w", i+1, err)
		}
	}
	return nil
}

// answer answers a read from a replica, if ctx allows that and a replica is fresh, or else from the primary. If the
// replica fails, the primary answers.
func answer[T any](ctx context.Context, e *Engine, call func(context.Context, *database) (T, error)) (T, error) {
	r, running, cancel := e.freshReplica(ctx)
	if r == nil {
		return call(ctx, e.primary)
	}
	result, err := call(running, r.database)
	cancel()
	if err == nil || ctx.Err() != nil || !ofReplica(err) {
		return result, err
	}
	replicaReads.WithLabelValues("failed").Inc()
	if away(err) {
		r.lost(err)
	}
	return call(ctx, e.primary)
}

// ofReplica reports whether the primary may answer where a replica has failed. It may not if the request itself is
// invalid or too expensive.
func ofReplica(err error) bool {
	var refused *pgconn.PgError
	return !errors.Is(err, search.ErrExpired) && !apierrors.IsBadRequest(err) && !(errors.As(err, &refused) && refused.Code == queryCanceled)
}

// freshReplica returns one of the fresh replicas in turn, and a context that ends when the replica stops responding. It
// returns nil if there is none.
func (e *Engine) freshReplica(ctx context.Context) (*replica, context.Context, context.CancelFunc) {
	if len(e.replicas) == 0 || !search.StaleAllowed(ctx) {
		return nil, nil, nil
	}
	first := int(e.turn.Add(1))
	for i := range e.replicas {
		r := e.replicas[(first+i)%len(e.replicas)]
		if responding := r.usable(); responding != nil {
			replicaReads.WithLabelValues("sent").Inc()
			running, cancel := whileResponding(ctx, responding)
			return r, running, cancel
		}
	}
	replicaReads.WithLabelValues("stale").Inc()
	return nil, nil, nil
}

// whileResponding returns a context that ends with ctx, or when a replica stops responding.
func whileResponding(ctx, responding context.Context) (context.Context, context.CancelFunc) {
	running, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(responding, cancel)
	return running, func() { stop(); cancel() }
}

// usable returns the context of a fresh replica, or nil.
func (r *replica) usable() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.responding.Err() != nil || time.Since(r.fresh) > r.engine.options.MaxStaleness {
		return nil
	}
	return r.responding
}

// refreshing returns the context in which a read updates the catalog. It ends with the replica, but not with the caller.
func (d *database) refreshing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.engine.options.StatementTimeout)
	if d.replica == nil {
		return ctx, cancel
	}
	d.replica.mu.Lock()
	defer d.replica.mu.Unlock()
	running, end := whileResponding(ctx, d.replica.responding)
	return running, func() { end(); cancel() }
}

// lost ends the searches on a replica.
func (r *replica) lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.responding.Err() != nil {
		return
	}
	r.end()
	klog.Background().WithName("search-postgres").Error(err, "Cannot use a replica of the search database; the primary answers its searches", "host", r.host, "port", r.port)
}

// found makes searches use a replica that contains all reports up to a moment.
func (r *replica) found(ctx context.Context, fresh time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh = fresh
	if r.responding.Err() != nil {
		r.responding, r.end = context.WithCancel(ctx)
		klog.Background().WithName("search-postgres").Info("Using a replica of the search database", "host", r.host, "port", r.port)
	}
}

// follow checks a replica until ctx ends.
func (r *replica) follow(ctx context.Context) {
	var marks []mark
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		// Without the primary, the age of the replica is unknown, and grows.
		if err := r.engine.addMark(ctx, &marks); err != nil {
			return
		}
		if err := r.check(ctx, marks); err != nil && ctx.Err() == nil {
			r.lost(err)
		}
	}, min(maxCheckInterval, r.engine.options.MaxStaleness/5), 0.1, true)
}

// addMark adds the current position of the primary, and forgets positions before the bound.
func (e *Engine) addMark(ctx context.Context, marks *[]mark) error {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	now := mark{read: time.Now()}
	if err := e.writes.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").Scan(&now.position); err != nil {
		return err
	}
	*marks = slices.DeleteFunc(append(*marks, now), func(old mark) bool { return now.read.Sub(old.read) > e.options.MaxStaleness })
	return nil
}

// check reads the position of a replica. The replica contains all reports up to the last mark that it has passed.
func (r *replica) check(ctx context.Context, marks []mark) error {
	limited, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	var standby bool
	var position int64
	var secret []byte
	err := r.checks.QueryRow(limited, "SELECT pg_is_in_recovery(), pg_wal_lsn_diff(coalesce(pg_last_wal_replay_lsn(), '0/0'), '0/0')::bigint, secret FROM "+
		table("meta")).Scan(&standby, &position, &secret)
	switch {
	case err != nil:
		return err
	case !standby:
		return errors.New("the server is not a replica; it may have been promoted")
	case !bytes.Equal(secret, r.engine.hash.secret):
		return errors.New("the server is a replica of another database")
	}
	for _, passed := range slices.Backward(marks) {
		if position >= passed.position {
			r.found(ctx, passed.read)
			break
		}
	}
	return nil
}
