// Package embedded is the search engine for one machine: everything is indexed in memory, and
// kept in a file, so that a restart searches at once.
//
// A value that a property has is a term, and a resource a row of terms. Each term
// knows its rows, as a bitmap where they are many, each property the order of its terms, and
// trigrams find the terms with a piece of text. What a caller may find is a bitmap too.
//
// There is one writer, and readers never wait for it: they use the state that was
// published last, which does not change any more. The writer copies what it changes.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	dataFile   = "search.db"
	markerFile = "search.state"
	// defaultChangeLog is how many changes are kept for watchers.
	defaultChangeLog = 100_000
	// syncPeriod is how often what was written is made durable against a crash of the machine.
	syncPeriod = time.Second
	// releaseEvery is after how many periods the pages of the file are given back.
	releaseEvery = 10
	// maxBatch bounds how many resources and edges are written together.
	maxBatch = 20_000
	// maxQueue bounds how many reports wait for the writer before it takes them.
	maxQueue = 1024
)

var errClosed = errors.New("the search engine is closed")

// Options of an engine. The zero Options are good.
type Options struct {
	// ChangeLog is how many changes of resources are kept for Changes; 0 means 100,000.
	ChangeLog int
	// Logger receives what is worth knowing; the zero Logger is that of the process.
	Logger klog.Logger

	// MaxCost is the processor time that the searches of one request may take, as it is estimated
	// beforehand; 0 means search.DefaultCost.
	MaxCost time.Duration
	// Caller names the caller of a request for whom long questions wait until it is the caller's turn; empty for one
	// who need not wait. Nil means that nobody waits.
	Caller func(context.Context) string

	// boot replaces the ID of the machine's run in tests.
	boot string
	// noRankings makes tests do without orders of all rows.
	noRankings bool
}

// Engine is a search.Engine.
type Engine struct {
	logger klog.Logger
	dir    string
	boot   string
	db     *bbolt.DB
	tokens *tokens
	scopes *scopes
	// rankings are the orders that are kept; nil in tests of what is done without.
	rankings    *rankings
	completions *completions
	maxCost     time.Duration
	caller      func(context.Context) string
	turns       *turns
	answers     *search.Pool
	log         changeLog
	current     atomic.Pointer[state]

	// writer belongs to the goroutine that writes.
	writer *writer
	queue  chan *order

	// closing is held shared by those who put orders into the queue.
	closing   sync.RWMutex
	isClosed  bool
	closed    chan struct{}
	running   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
	unsynced  atomic.Bool
}

var _ search.Engine = (*Engine)(nil)

// order is a report to be applied, or a cluster to be removed.
type order struct {
	report  *search.Report
	cluster string
	// taken is set by whoever decides first whether it is carried out.
	taken   atomic.Bool
	applied *search.Applied
	err     error
	done    chan struct{}
}

func (o *order) size() int {
	if o.report == nil {
		return maxBatch / 4
	}
	r := o.report
	return 1 + len(r.Put) + len(r.Delete) + len(r.AddEdges) + len(r.DeleteEdges)
}

// Apply implements search.Engine. If ctx ends before the report's turn, it is not applied; after that
// Apply waits for its end, which is near.
func (e *Engine) Apply(ctx context.Context, report *search.Report) (*search.Applied, error) {
	defer observe("apply", time.Now())
	if err := check(report); err != nil {
		return nil, err
	}
	o := &order{report: report, done: make(chan struct{})}
	if err := e.do(ctx, o); err != nil {
		return nil, fmt.Errorf("report of cluster %s: %w", report.Cluster, err)
	}
	return o.applied, nil
}

// RemoveCluster implements search.Engine.
func (e *Engine) RemoveCluster(ctx context.Context, cluster string) error {
	if err := e.do(ctx, &order{cluster: cluster, done: make(chan struct{})}); err != nil {
		return fmt.Errorf("remove cluster %s: %w", cluster, err)
	}
	return nil
}

// do has the writer carry out an order.
func (e *Engine) do(ctx context.Context, o *order) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.enqueue(ctx, o); err != nil {
		return err
	}
	select {
	case <-o.done:
	case <-ctx.Done():
		if o.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		<-o.done
	}
	return o.err
}

func (e *Engine) enqueue(ctx context.Context, o *order) error {
	e.closing.RLock()
	defer e.closing.RUnlock()
	if e.isClosed {
		return errClosed
	}
	select {
	case e.queue <- o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write carries out orders until the queue is closed.
func (e *Engine) write() {
	defer e.running.Done()
	for first := range e.queue {
		batch, size := []*order{first}, first.size()
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
		e.carryOut(batch)
	}
}

// carryOut applies orders in one transaction, and answers them once it is on disk.
func (e *Engine) carryOut(batch []*order) {
	before := e.current.Load()
	t := e.writer.begin(before)
	var applied []*order
	for _, o := range batch {
		if !o.taken.CompareAndSwap(false, true) {
			continue
		}
		switch {
		case o.report == nil:
			t.removeCluster(o.cluster)
		default:
			if o.applied, o.err = t.apply(o.report); o.err != nil {
				close(o.done)
				continue
			}
		}
		applied = append(applied, o)
	}
	var err error
	if t.version != before.version {
		if err = t.prepare(func() error { return t.write(e.db) }); err == nil {
			t.finish()
			e.publish(t)
		} else {
			e.giveUp(before, err)
		}
	}
	for _, o := range applied {
		if err != nil {
			o.err = fmt.Errorf("write: %w", err)
		}
		close(o.done)
	}
}

// publish lets readers see a transaction.
func (e *Engine) publish(t *transaction) {
	s := t.state
	e.current.Store(&s)
	e.unsynced.Store(true)
	e.writer.release(e.log.publish(&s, t.changes))
	s.measure()
}

// giveUp undoes a transaction that could not be written. What was derived outside of the state is
// derived again, and watchers begin again.
func (e *Engine) giveUp(before *state, err error) {
	e.logger.Error(err, "Reports could not be written and are refused", "version", before.version)
	e.writer = newWriter(before, e.writer.transactions)
	e.log.reset(before)
}

// sync makes what was written durable, each second.
func (e *Engine) sync() {
	defer e.running.Done()
	ticker := time.NewTicker(syncPeriod)
	defer ticker.Stop()
	for period := 1; ; period++ {
		select {
		case <-e.closed:
			return
		case <-ticker.C:
		}
		if e.unsynced.Swap(false) {
			if err := e.db.Sync(); err != nil {
				e.unsynced.Store(true)
				e.logger.Error(err, "Reports are not durable against a crash of the machine")
			}
		}
		if period%releaseEvery == 0 {
			if e.rankings != nil {
				e.rankings.forgetIdle()
			}
			if err := releaseMapping(e.db); err != nil {
				e.logger.V(4).Info("Pages of the data stay in memory", "err", err)
			}
		}
	}
}

// Close implements search.Engine. Reports that wait are still applied; reads may go on.
func (e *Engine) Close() error {
	e.closeOnce.Do(func() {
		e.closing.Lock()
		e.isClosed = true
		close(e.queue)
		e.closing.Unlock()
		close(e.closed)
		e.running.Wait()
		err := e.db.Sync()
		if err == nil {
			err = writeMarker(filepath.Join(e.dir, markerFile), marker{Boot: e.boot, Clean: true})
		}
		if err := errors.Join(err, e.db.Close()); err != nil {
			e.closeErr = fmt.Errorf("close the data: %w", err)
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
			one := search.ClusterState{
				Name: c.name, Hub: c.hub, Resources: c.rows.count(), Edges: c.edges, Reported: c.reported, Incomplete: c.incomplete,
			}
			if !c.hub {
				one.Secrets = c.secrets.count()
			}
			states = append(states, one)
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
