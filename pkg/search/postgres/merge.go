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
	// mergeFrom is the number of written resources from which on the inverted indexes are merged.
	mergeFrom = 250
	// maxUnmerged is the number of written resources from which on reports wait for a merge, because every search
	// reads all unmerged entries.
	maxUnmerged = 7_500
	// urgentFrom is the number of written resources from which on a merge does not wait for mergeInterval.
	urgentFrom = maxUnmerged / 2
	// mergeInterval is the minimum time between two merges: values that many resources share are then merged once.
	mergeInterval = time.Second
	// pendingLimit is the size from which on PostgreSQL merges within a report.
	pendingLimit = "64MB"
)

// merges counts the resources whose entries have not been merged into the inverted indexes. One
// large merge costs less than many small merges, and does not delay reports.
type merges struct {
	mu        sync.Mutex
	resources int
	// failing is true while merges fail. Reports then do not wait.
	failing bool
	// merged is closed after the merge in progress.
	merged chan struct{}
	// wanted contains an element if a merge is due, and urgent if it must not wait.
	wanted, urgent chan struct{}
}

func newMerges() *merges {
	return &merges{merged: make(chan struct{}), wanted: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// add counts written resources. If too many are unmerged, it waits for a merge.
func (m *merges) add(ctx context.Context, resources int) {
	m.mu.Lock()
	m.resources += resources
	if m.resources >= mergeFrom {
		signal(m.wanted)
	}
	if m.resources >= urgentFrom {
		signal(m.urgent)
	}
	for !m.failing && m.resources > max(maxUnmerged, resources) {
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

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// begin returns the number of unmerged resources.
func (m *merges) begin() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resources
}

// end wakes callers that wait for a merge.
func (m *merges) end(resources int, failing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resources -= resources
	m.failing = failing
	close(m.merged)
	m.merged = make(chan struct{})
}

// mergeRegularly merges until ctx ends. If a merge fails, PostgreSQL merges later.
func (e *Engine) mergeRegularly(ctx context.Context) {
	defer e.merges.end(0, true)
	logger := klog.FromContext(ctx).WithName("search-postgres")
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
	delay := backoff
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.merges.wanted:
		}
		select {
		case <-ctx.Done():
			return
		case <-e.merges.urgent:
		case <-time.After(time.Until(last.Add(mergeInterval))):
		}
		last = time.Now()
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
		logger.Error(err, "Cannot merge the indexes of the search database; searches may be slower", "retry", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// merge merges pending entries into all inverted indexes.
func (e *Engine) merge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.options.ApplyTimeout)
	defer cancel()
	_, err := e.writes.Exec(ctx, `SELECT gin_clean_pending_list(i.indexrelid)
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
		WHERE m.amname = 'gin' AND c.relkind = 'i' AND i.indisvalid AND c.relnamespace = to_regnamespace($1)`, pgx.Identifier{e.options.Schema}.Sanitize())
	if err != nil {
		return fmt.Errorf("merging inverted indexes: %w", err)
	}
	return nil
}
