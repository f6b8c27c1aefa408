package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// mergeFrom is from how many written resources on the inverted indexes are merged.
	mergeFrom = 250
	// mostUnmerged is how many written resources may wait for it before reports do: every search reads through them.
	mostUnmerged = 7_500
	// pendingLimit is what PostgreSQL merges by itself within a report, should nobody else do.
	pendingLimit = "64MB"
)

// merges counts what this process has written and the inverted indexes have only beside them. To
// merge it at once costs less than bit by bit, and reports do not wait for it.
type merges struct {
	mu        sync.Mutex
	resources int
	// failing is true while nobody merges, so that there is nothing to wait for.
	failing bool
	// merged is closed after the merge under way.
	merged chan struct{}
	// wanted has something if there is enough to merge.
	wanted chan struct{}
}

func newMerges() *merges {
	return &merges{merged: make(chan struct{}), wanted: make(chan struct{}, 1)}
}

// add counts what was written, and waits while that is too much.
func (m *merges) add(ctx context.Context, resources int) {
	m.mu.Lock()
	m.resources += resources
	if m.resources >= mergeFrom {
		select {
		case m.wanted <- struct{}{}:
		default:
		}
	}
	for !m.failing && m.resources > max(mostUnmerged, resources) {
		merged := m.merged
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-merged:
		}
		m.mu.Lock()
	}
	m.mu.Unlock()
}

// begin is how much there is to merge.
func (m *merges) begin() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resources
}

// end releases those who wait for a merge.
func (m *merges) end(resources int, failing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resources -= resources
	m.failing = failing
	close(m.merged)
	m.merged = make(chan struct{})
}

// mergeRegularly merges until ctx ends. Where it cannot, PostgreSQL does by itself, later.
func (e *Engine) mergeRegularly(ctx context.Context) {
	defer e.merges.end(0, true)
	logger := klog.FromContext(ctx).WithName("search-postgres")
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
	delay := backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.merges.wanted:
		}
		resources := e.merges.begin()
		err := e.merge(ctx)
		e.merges.end(resources, err != nil)
		if err == nil {
			delay = backoff
			continue
		}
		if ctx.Err() != nil {
			return
		}
		pause := delay.Step()
		logger.Error(err, "The indexes of the search database were not merged; searches may be slower", "retry", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// merge has all inverted indexes take in what is beside them.
func (e *Engine) merge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.options.ApplyTimeout)
	defer cancel()
	_, err := e.pool.Exec(ctx, `SELECT gin_clean_pending_list(i.indexrelid)
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
		WHERE m.amname = 'gin' AND c.relkind = 'i' AND i.indisvalid AND c.relnamespace = to_regnamespace($1)`, pgx.Identifier{e.options.Schema}.Sanitize())
	if err != nil {
		return fmt.Errorf("merging inverted indexes: %w", err)
	}
	return nil
}
