package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

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
func (e *Engine) channel() string { return schema + "_version" }

// listen listens for notifications until ctx ends. It reconnects with backoff. Waiting callers also
// poll, so a lost notification only causes a delay.
func (e *Engine) listen(ctx context.Context) {
	logger := klog.FromContext(ctx).WithName("search-postgres")
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 30 * time.Second}
	_ = backoff.DelayWithReset(clock.RealClock{}, time.Minute).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := e.listenOnce(ctx); ctx.Err() == nil {
			logger.Error(err, "Lost the connection that listens for changes of the search database; connecting again")
		}
		return false, nil
	})
}

// listenOnce listens on a separate connection until the connection fails.
func (e *Engine) listenOnce(ctx context.Context) error {
	connection, err := pgx.ConnectConfig(ctx, e.primary.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = connection.Close(closing)
	}()
	if _, err := connection.Exec(ctx, "LISTEN "+pgx.Identifier{e.channel()}.Sanitize()); err != nil {
		return err
	}
	for {
		// There may have been changes while no connection listened.
		e.news.announce()
		if _, err := connection.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

// Changes implements search.Engine.
func (e *Engine) Changes(ctx context.Context, after search.Position, most, bytes int) (_ []search.Change, _ search.Position, err error) {
	for {
		// Get the channel before the read, so that a change after the read ends the wait below.
		next := e.news.next()
		changes, position, err := e.changesNow(ctx, after, max(1, most), bytes)
		switch {
		case err != nil:
			return nil, search.Position{}, fmt.Errorf("changes after version %d: %w", after.Version, err)
		case len(changes) > 0:
			return changes, position, nil
		}
		select {
		case <-ctx.Done():
			return nil, position, nil
		case <-next:
		case <-time.After(e.options.PollInterval):
		}
	}
}

// changesNow returns the current changes after a position, and the position after them.
func (e *Engine) changesNow(ctx context.Context, after search.Position, most, bytes int) (changes []search.Change, position search.Position, err error) {
	defer observe("changes", time.Now(), &err)
	// A caller that does not wait passes a context that has ended, and must still receive the
	// current changes.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.options.StatementTimeout)
	defer cancel()
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, e.primary.pool, options, func(tx pgx.Tx) error {
		var version, trimmed int64
		if err := tx.QueryRow(ctx, "SELECT version, trimmed FROM "+table("meta")).Scan(&version, &trimmed); err != nil {
			return err
		}
		if after.Version > uint64(version) || after.Version < uint64(trimmed) {
			return search.ErrExpired
		}
		if position = (search.Position{Version: uint64(version)}); after == position {
			return nil
		}
		var next *search.Position
		if changes, next, err = e.readChanges(ctx, tx, after, most, bytes); next != nil {
			position = *next
		}
		return err
	})
	return changes, position, err
}

// readChanges reads changes after a position. It returns the position of the next one, or nil if there is none.
func (e *Engine) readChanges(ctx context.Context, tx pgx.Tx, after search.Position, most, bytes int) (changes []search.Change, next *search.Position, err error) {
	// The change after the last one decides the new position.
	rows, err := tx.Query(ctx, "SELECT version, seq, cluster, hub, uid, before, after, internal FROM "+table("changes")+
		" WHERE (version, seq) >= ($1, $2) ORDER BY version, seq LIMIT $3", int64(after.Version)+1, after.Part, most+1)
	if err != nil {
		return nil, nil, err
	}
	var one search.Change
	var version int64
	var seq int
	var before, now, internal *string
	_, err = pgx.ForEachRow(rows, []any{&version, &seq, &one.Cluster, &one.Hub, &one.UID, &before, &now, &internal}, func() error {
		if next != nil {
			return nil
		}
		if len(changes) == most || bytes <= 0 {
			next = &search.Position{Version: uint64(version) - 1, Part: seq}
			return nil
		}
		one.Version, one.Cluster, one.UID = uint64(version), unescape(one.Cluster), unescape(one.UID)
		one.Bytes = 0
		for _, properties := range []struct {
			doc  *string
			into *query.Properties
		}{{before, &one.Before}, {now, &one.After}, {internal, &one.Internal}} {
			var err error
			if *properties.into, err = decoded(properties.doc); err != nil {
				return err
			}
			one.Bytes += properties.into.Bytes() + properties.into.TextBytes()
		}
		bytes -= one.Bytes
		changes = append(changes, one)
		return nil
	})
	return changes, next, err
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
	// The jitter keeps servers that started together from trimming together.
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := e.trim(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Cannot remove old changes of the search database; trying again")
		}
	}, e.options.TrimInterval, 0.25, true)
}

// trim removes changes older than the versions to keep, and classes that have been empty since
// then.
func (e *Engine) trim(ctx context.Context) error {
	return pgx.BeginFunc(ctx, e.writes, func(tx pgx.Tx) error {
		var first bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", lockKey("trim", "")).Scan(&first); err != nil || !first {
			return err
		}
		var version, trimmed int64
		if err := tx.QueryRow(ctx, "SELECT version, trimmed FROM "+table("meta")).Scan(&version, &trimmed); err != nil {
			return err
		}
		horizon := version - int64(e.options.KeepChanges)
		if horizon <= trimmed {
			return nil
		}
		for _, statement := range []string{
			"DELETE FROM " + table("changes") + " WHERE version <= $1",
			"DELETE FROM " + table("classes") + " WHERE n = 0 AND changed <= $1",
			"UPDATE " + table("meta") + " SET trimmed = $1",
		} {
			if _, err := tx.Exec(ctx, statement, horizon); err != nil {
				return err
			}
		}
		return nil
	})
}
