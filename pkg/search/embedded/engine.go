// Package embedded is the search engine for one machine. It keeps all data in memory, indexed, and
// on disk, together with a checkpoint of the indexes, so that it can search soon after a restart.
//
// A value of a property is a term, and a resource is a row of terms. The index contains the
// postings of each term, the terms of each property in order, and the postings of trigrams. The
// postings of a term are the rows with this term; they are a bitmap if there are many. Trigrams
// find terms that contain a text. The resources in the scope of a caller are also a bitmap.
//
// One goroutine writes, and readers never wait for it: they use the last published state, which
// no longer changes. The writer copies the parts that it changes.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// defaultChangeLog is the number of changes that are kept for watchers.
	defaultChangeLog = 100_000
	// maxBatch bounds the number of resources and edges that are written together.
	maxBatch = 20_000
	// maxQueue bounds the number of reports that wait for the writer.
	maxQueue = 1024
)

var errClosed = errors.New("the search engine is closed")

// Options of an engine. The zero value selects the defaults.
type Options struct {
	// ChangeLog is the number of changes of resources that are kept for Changes; 0 means 100,000.
	ChangeLog int
	// Logger defaults to the logger of the process.
	Logger klog.Logger

	// MaxCost bounds the estimated processor time of the searches of one request; 0 means search.DefaultCost.
	MaxCost time.Duration
	// Caller returns the caller of a request. Long searches of a caller wait for the caller's turn.
	// It returns "" if searches need not wait. If Caller is nil, no search waits.
	Caller func(context.Context) string

	// boot replaces the boot ID of the machine in tests.
	boot string
}

// Engine is a search.Engine.
type Engine struct {
	logger klog.Logger
	store  *store
	tokens *search.Tokens
	scopes *scopes
	// keywords contains the keywords of the last requests.
	keywords *lru.Cache
	maxCost  time.Duration
	caller   func(context.Context) string
	turns    *turns
	answers  *search.Pool
	log      changeLog
	current  atomic.Pointer[state]

	// indexed is the number of resources that were indexed when the data were loaded.
	indexed int
	// writer is used only by the goroutine that writes.
	writer *writer
	queue  chan *job

	// closing guards isClosed, and is held while a job is put into the queue.
	closing   sync.RWMutex
	isClosed  bool
	closed    chan struct{}
	running   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

var _ search.Engine = (*Engine)(nil)

// job is a report to apply, a cluster to remove, a snapshot to take, or a mapping of a checkpoint of a snapshot to use.
type job struct {
	report   *search.Report
	cluster  string
	snapshot *snapshot
	mapping  *checkpointReader
	// claimed is set by the writer when it starts the job, or by the caller when it withdraws the job.
	claimed atomic.Bool
	applied *search.Applied
	err     error
	done    chan struct{}
}

func (j *job) size() int {
	if j.report == nil {
		return maxBatch / 4
	}
	r := j.report
	return 1 + len(r.Put) + len(r.Delete) + len(r.AddEdges) + len(r.DeleteEdges)
}

// Apply implements search.Engine. If ctx ends before the writer starts the report, the report is
// not applied. Otherwise, Apply waits for the end of the report.
func (e *Engine) Apply(ctx context.Context, report *search.Report) (*search.Applied, error) {
	defer observe("apply", time.Now())
	if err := check(report); err != nil {
		return nil, err
	}
	j := &job{report: report, done: make(chan struct{})}
	if err := e.do(ctx, j); err != nil {
		return nil, fmt.Errorf("report of cluster %s: %w", report.Cluster, err)
	}
	return j.applied, nil
}

// RemoveCluster implements search.Engine.
func (e *Engine) RemoveCluster(ctx context.Context, cluster string) error {
	if err := e.do(ctx, &job{cluster: cluster, done: make(chan struct{})}); err != nil {
		return fmt.Errorf("remove cluster %s: %w", cluster, err)
	}
	return nil
}

// do queues a job and waits for its end.
func (e *Engine) do(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.enqueue(ctx, j); err != nil {
		return err
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		if j.claimed.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		<-j.done
	}
	return j.err
}

func (e *Engine) enqueue(ctx context.Context, j *job) error {
	e.closing.RLock()
	defer e.closing.RUnlock()
	if e.isClosed {
		return errClosed
	}
	select {
	case e.queue <- j:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write commits the jobs of the queue until the queue is closed.
func (e *Engine) write() {
	defer e.running.Done()
	for first := range e.queue {
		batch, size := []*job{first}, first.size()
	gather:
		for size < maxBatch {
			select {
			case next, open := <-e.queue:
				if !open {
					break gather
				}
				batch, size = append(batch, next), size+next.size()
			default:
				break gather
			}
		}
		e.commit(batch)
	}
}

// commit applies jobs in one transaction, and ends them after the transaction is on disk.
func (e *Engine) commit(batch []*job) {
	before := e.current.Load()
	t := e.writer.begin(before)
	var applied []*job
	remapped := false
	for _, j := range batch {
		if !j.claimed.CompareAndSwap(false, true) {
			continue
		}
		switch {
		case j.mapping != nil:
			t.use(j.mapping, j.snapshot.state)
			remapped = true
		case j.snapshot != nil:
		case j.report == nil:
			t.removeCluster(j.cluster)
		default:
			if j.applied, j.err = t.apply(j.report); j.err != nil {
				close(j.done)
				continue
			}
		}
		applied = append(applied, j)
	}
	var err error
	if remapped || t.state.version != before.version {
		if err = t.prepare(func() error { return e.store.write(t) }); err == nil {
			t.finish()
			e.publish(t)
		} else {
			e.rollBack(before, err)
		}
	}
	for _, j := range applied {
		if err != nil {
			j.err = fmt.Errorf("write: %w", err)
		} else if j.snapshot != nil && j.mapping == nil {
			*j.snapshot = e.snapshot()
		}
		close(j.done)
	}
}

// snapshot returns the current state and the files that contain it.
func (e *Engine) snapshot() snapshot {
	s := snapshot{state: e.current.Load(), files: make(map[string]clusterFile, len(e.store.files))}
	for name, file := range e.store.files {
		s.files[name] = *file
	}
	return s
}

// publish makes a transaction visible to readers.
func (e *Engine) publish(t *transaction) {
	s := t.state
	e.writer.free.release(e.log.publish(&e.current, &s, t.journal.changes))
	s.measure()
}

// rollBack undoes a transaction that could not be written. It derives the writer from the last
// state again, and makes watchers start again.
func (e *Engine) rollBack(before *state, err error) {
	e.logger.Error(err, "Reports could not be written and are refused", "version", before.version)
	e.writer = newWriter(before, e.writer.transactions)
	e.log.reset(before)
}

// Close implements search.Engine. It applies the waiting reports. Reads may continue.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.closing.Lock()
		e.isClosed = true
		close(e.queue)
		e.closing.Unlock()
		close(e.closed)
		e.running.Wait()
		if err := e.store.close(); err != nil {
			e.closeErr = fmt.Errorf("close the search data: %w", err)
		}
	})
	return e.closeErr
}

// Clusters implements search.Engine.
func (e *Engine) Clusters(ctx context.Context) ([]search.ClusterState, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var states []search.ClusterState
	for _, c := range e.current.Load().clusters {
		if c.present {
			clusterState := search.ClusterState{
				Name: c.name, Hub: c.hub, Resources: c.rows.count(), Edges: c.edges, Reported: c.reported, Incomplete: c.incomplete,
			}
			if !c.hub {
				clusterState.Secrets = c.secrets.count()
			}
			states = append(states, clusterState)
		}
	}
	slices.SortFunc(states, func(a, b search.ClusterState) int { return cmp.Compare(a.Name, b.Name) })
	return states, nil
}

// Version implements search.Engine.
func (e *Engine) Version(ctx context.Context) (uint64, error) {
	return e.current.Load().version, ctx.Err()
}

// HubClasses implements search.Engine.
func (e *Engine) HubClasses(ctx context.Context) ([]visibility.Class, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	s := e.current.Load()
	var classes []visibility.Class
	for _, c := range s.clusters {
		if !c.hub {
			continue
		}
		for _, ids := range [...][]uint32{c.classes, c.secretClasses} {
			for _, id := range ids {
				classes = append(classes, s.classes.at(id).class)
			}
		}
	}
	return classes, s.hubClasses, nil
}
