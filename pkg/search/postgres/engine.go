package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// Engine is a search.Engine on PostgreSQL. It is as durable as the database.
type Engine struct {
	options Options
	hash    hasher
	tokens  *search.Tokens
	// writes is the pool of reports and maintenance. Neither reads nor writes wait for a connection of the other.
	writes  *pgxpool.Pool
	primary *database
	// small contains waiting reports that are applied in groups, and large those that need a transaction of their own.
	small, large chan *application
	// replicas answer searches. turn counts these searches.
	replicas []*replica
	turn     atomic.Uint32

	news news
	stop context.CancelFunc
	// ending is closed when the engine closes.
	ending <-chan struct{}
	ended  sync.WaitGroup
	closed sync.Once
}

var _ search.Engine = (*Engine)(nil)

// Open connects to a database and creates or migrates its tables. Several processes may use one
// database. Close ends the engine; the end of ctx does not. The error wraps search.ErrUnavailable if
// the database is unavailable.
func Open(ctx context.Context, options Options) (*Engine, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("search on PostgreSQL: %w", err)
	}
	registerMetrics()
	e := &Engine{options: options}
	if err := e.connect(ctx); err != nil {
		return nil, fmt.Errorf("search on PostgreSQL: %w", classified(err))
	}
	if err := e.prepare(ctx); err != nil {
		e.disconnect()
		return nil, fmt.Errorf("search on PostgreSQL: %w", classified(err))
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	e.startReports(background)
	e.ended.Go(func() { options.Reach.run(background) })
	e.ended.Go(func() { e.listen(background) })
	e.ended.Go(func() { e.trimRegularly(background) })
	for _, r := range e.replicas {
		e.ended.Go(func() { r.follow(background) })
	}
	return e, nil
}

func (e *Engine) connect(ctx context.Context) (err error) {
	reads, err := e.options.connect(ctx, e.options.readConfig)
	if err != nil {
		return err
	}
	e.primary = newDatabase(e, reads)
	if e.writes, err = e.options.connect(ctx, e.options.writeConfig); err != nil {
		reads.Close()
		return err
	}
	if err = e.openReplicas(ctx); err != nil {
		e.disconnect()
	}
	return err
}

func (e *Engine) disconnect() {
	e.primary.pool.Close()
	e.writes.Close()
	for _, r := range e.replicas {
		r.pool.Close()
		if r.checks != nil {
			r.checks.Close()
		}
	}
}

func (e *Engine) prepare(ctx context.Context) error {
	if err := e.migrate(ctx); err != nil {
		return fmt.Errorf("migrating the schema %s: %w", schema, err)
	}
	if err := e.writes.QueryRow(ctx, "SELECT secret FROM "+table("meta")).Scan(&e.hash.secret); err != nil {
		return fmt.Errorf("reading the schema %s: %w", schema, err)
	}
	if len(e.hash.secret) == 0 {
		return errors.New("the database has no secret")
	}
	// All servers of the database have the same key, so that any of them may answer the next page.
	key := hmac.New(sha256.New, e.hash.secret)
	_, _ = key.Write([]byte("continue tokens")) // A hash never returns an error.
	var err error
	e.tokens, err = search.NewTokens(key.Sum(nil), rowBytes)
	return err
}

// Close implements search.Engine. It waits for calls in progress.
func (e *Engine) Close() error {
	e.closed.Do(func() {
		e.stop()
		e.ended.Wait()
		e.disconnect()
	})
	return nil
}

// Version implements search.Engine.
func (e *Engine) Version(ctx context.Context) (_ uint64, err error) {
	defer observe("version", time.Now(), &err)
	var version int64
	if err := e.primary.pool.QueryRow(ctx, "SELECT version FROM "+table("meta")).Scan(&version); err != nil {
		return 0, fmt.Errorf("reading the version: %w", err)
	}
	return uint64(version), nil
}

// Clusters implements search.Engine.
func (e *Engine) Clusters(ctx context.Context) (_ []search.ClusterState, err error) {
	defer observe("clusters", time.Now(), &err)
	rows, err := e.primary.pool.Query(ctx, `SELECT c.name, c.hub, c.resources, c.edges, c.reported,
		coalesce((SELECT sum(s.n) FROM `+table("classes")+` s WHERE s.cluster = c.id AND s.id < 0), 0)::bigint
		FROM `+table("clusters")+" c ORDER BY c.name")
	if err != nil {
		return nil, fmt.Errorf("reading the clusters: %w", err)
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (state search.ClusterState, err error) {
		err = row.Scan(&state.Name, &state.Hub, &state.Resources, &state.Edges, &state.Reported, &state.Secrets)
		state.Name = unescape(state.Name)
		return state, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the clusters: %w", err)
	}
	return states, nil
}
