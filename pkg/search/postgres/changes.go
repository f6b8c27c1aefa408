package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// news wakes callers that wait for changes.
type news struct {
	mu      sync.Mutex
	waiting chan struct{}
}

// next returns a channel that is closed at the next notification.
func (n *news) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting == nil {
		n.waiting = make(chan struct{})
	}
	return n.waiting
}

func (n *news) announce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting != nil {
		close(n.waiting)
		n.waiting = nil
	}
}

// channel returns the name of the notification channel.
func (e *Engine) channel() string { return e.options.Schema + "_version" }

// listen listens for notifications until ctx ends. It reconnects with backoff. Waiting callers also
// poll, so a lost notification only causes a delay.
func (e *Engine) listen(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("search-postgres")
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 30 * time.Second}
	delay := backoff
	for ctx.Err() == nil {
		connected, err := e.listenOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if connected {
			delay = backoff
		}
		pause := delay.Step()
		logger.Error(err, "Lost the connection that listens for changes of the search database", "retry", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// listenOnce listens on a separate connection until the connection fails.
func (e *Engine) listenOnce(ctx context.Context) (connected bool, err error) {
	config := e.primary.pool.Config().ConnConfig.Copy()
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = connection.Close(closing)
	}()
	if _, err := connection.Exec(ctx, "LISTEN "+pgx.Identifier{e.channel()}.Sanitize()); err != nil {
		return false, err
	}
	for {
		// There may have been changes while no connection listened.
		e.news.announce()
		if _, err := connection.WaitForNotification(ctx); err != nil {
			return true, err
		}
	}
}

// Changes implements search.Engine.
func (e *Engine) Changes(ctx context.Context, after uint64, most int) (_ []search.Change, _ uint64, err error) {
	for {
		// Get the channel before the read, so that a change after the read ends the wait below.
		next := e.news.next()
		changes, version, err := e.changesNow(ctx, after, most)
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("changes after version %d: %w", after, err)
		case len(changes) > 0:
			return changes, version, nil
		}
		timer := time.NewTimer(e.options.PollInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, version, nil
		case <-next:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// changesNow returns the current changes, and the version up to which they are complete.
func (e *Engine) changesNow(ctx context.Context, after uint64, most int) (_ []search.Change, _ uint64, err error) {
	defer observe("changes", time.Now(), &err)
	// A caller that does not wait passes a context that has ended, and must still receive the
	// current changes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.StatementTimeout)
	defer cancel()
	var changes []search.Change
	var version, trimmed int64
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, e.primary.pool, options, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT version, trimmed FROM "+e.table("meta")).Scan(&version, &trimmed); err != nil {
			return err
		}
		if after > uint64(version) || after < uint64(trimmed) {
			return search.ErrExpired
		}
		if after == uint64(version) {
			return nil
		}
		// The result must contain all changes of its last version.
		err := tx.QueryRow(ctx, "SELECT version FROM "+e.table("changes")+" WHERE version > $1 ORDER BY version, seq OFFSET $2 LIMIT 1",
			int64(after), max(1, most)-1).Scan(&version)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		changes, err = e.readChanges(ctx, tx, int64(after), version)
		return err
	})
	return changes, uint64(version), err
}

// readChanges reads the changes between two versions.
func (e *Engine) readChanges(ctx context.Context, tx pgx.Tx, after, upTo int64) ([]search.Change, error) {
	rows, err := tx.Query(ctx, "SELECT version, cluster, hub, uid, before, after, internal FROM "+e.table("changes")+
		" WHERE version > $1 AND version <= $2 ORDER BY version, seq", after, upTo)
	if err != nil {
		return nil, err
	}
	var changes []search.Change
	var one search.Change
	var version int64
	var before, now, internal *string
	_, err = pgx.ForEachRow(rows, []any{&version, &one.Cluster, &one.Hub, &one.UID, &before, &now, &internal}, func() error {
		one.Version, one.Cluster, one.UID = uint64(version), unescape(one.Cluster), unescape(one.UID)
		var err error
		if one.Before, err = decoded(before); err != nil {
			return err
		}
		if one.After, err = decoded(now); err != nil {
			return err
		}
		if one.Internal, err = decoded(internal); err != nil {
			return err
		}
		changes = append(changes, one)
		return nil
	})
	return changes, err
}

func decoded(doc *string) (query.Properties, error) {
	if doc == nil {
		return nil, nil
	}
	return query.DecodeProperties([]byte(*doc))
}

// trimRegularly removes old changes until ctx ends.
func (e *Engine) trimRegularly(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("search-postgres")
	for {
		// The jitter prevents that servers that started together also trim together.
		pause := time.NewTimer(e.options.TrimInterval + rand.N(e.options.TrimInterval/4+1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		if err := e.trim(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Cannot remove old changes of the search database; trying again")
		}
	}
}

// trim removes changes older than the versions to keep, and classes that have been empty since
// then.
func (e *Engine) trim(ctx context.Context) error {
	return pgx.BeginFunc(ctx, e.writes, func(tx pgx.Tx) error {
		var first bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", lockKey(e.options.Schema, "trim", "")).Scan(&first); err != nil || !first {
			return err
		}
		var version, trimmed int64
		if err := tx.QueryRow(ctx, "SELECT version, trimmed FROM "+e.table("meta")).Scan(&version, &trimmed); err != nil {
			return err
		}
		horizon := version - int64(e.options.KeepChanges)
		if horizon <= trimmed {
			return nil
		}
		if _, err := tx.Exec(ctx, "DELETE FROM "+e.table("changes")+" WHERE version <= $1", horizon); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM "+e.table("classes")+" WHERE n = 0 AND changed <= $1", horizon); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE "+e.table("meta")+" SET trimmed = $1", horizon)
		return err
	})
}
