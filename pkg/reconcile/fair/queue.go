// Package fair shares workers among tenants.
//
// A [Queue] passes items to workers in two lanes. The priority lane is for deletions and has its own
// workers. Within a lane, tenants take turns. A [Watchdog] names workers that do not return.
package fair

import (
	"context"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Class is the scheduling class of an item.
type Class struct {
	// Priority puts the item into the priority lane, which does not wait for other items.
	Priority bool
	// Tenant is the party that shares workers with others.
	Tenant string
}

func (c Class) lane() int {
	if c.Priority {
		return priorityLane
	}
	return ordinaryLane
}

// Config configures a Queue. Clock may be nil.
type Config[T comparable] struct {
	// Name is the name of the queue in metrics.
	Name string
	// Class returns the current class of an item. It is called with the queue locked, whenever the
	// item is added, so it must neither block nor use the queue.
	Class func(T) Class
	// Workers is the number of items of the ordinary lane that are handled in parallel.
	// WorkersPerTenant limits the items of one tenant.
	Workers, WorkersPerTenant int
	// PriorityWorkers is the number of items of the priority lane that are handled in parallel, in
	// addition to the items that idle workers of the ordinary lane take.
	PriorityWorkers int
	Clock           clock.WithTicker
}

// Queue is a work queue that is fair among tenants. It implements workqueue.TypedInterface, so that
// a delaying queue can be built on it. As in any work queue, only one worker handles an item at a
// time.
//
// The share of a tenant depends on the number of idle workers. A tenant that has workers gets
// another one only if more than twice as many workers are idle. So a single tenant can use many
// workers, many tenants get fewer each, and the last idle workers are reserved for tenants that
// have none.
type Queue[T comparable] struct {
	config Config[T]

	mu   sync.Mutex
	cond *sync.Cond
	// items contains the waiting items and the items in progress, and maintains the metrics that
	// all work queues have. It is used only while mu is held, so that it never blocks.
	items *workqueue.Typed[T]
	// waiting and handled are the waiting items and the items that workers handle.
	waiting map[T]waiting
	handled map[T]handled
	lanes   [lanes]lane[T]
	pools   [lanes]pool
	// turn is the item that is passed to a worker next.
	turn T
}

var _ workqueue.TypedInterface[string] = (*Queue[string])(nil)

type waiting struct {
	class Class
	since time.Time
}

// handled is an item that a worker of a pool handles.
type handled struct {
	tenant string
	pool   int
}

// pool counts the workers of a lane.
type pool struct {
	limit, perTenant, busy int
	tenants                map[string]int
}

// NewQueue returns an empty queue.
func NewQueue[T comparable](config Config[T]) *Queue[T] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	q := &Queue[T]{config: config, waiting: map[T]waiting{}, handled: map[T]handled{}}
	q.items = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: config.Name, Clock: config.Clock, Queue: order[T]{q}})
	q.cond = sync.NewCond(&q.mu)
	for i := range q.lanes {
		q.lanes[i].items = map[string][]T{}
	}
	q.pools[ordinaryLane] = pool{limit: config.Workers, perTenant: config.WorkersPerTenant, tenants: map[string]int{}}
	q.pools[priorityLane] = pool{limit: config.PriorityWorkers, perTenant: config.PriorityWorkers, tenants: map[string]int{}}
	return q
}

// order makes the work queue return items in the order of a Queue. The mu of the Queue must be
// held.
type order[T comparable] struct{ queue *Queue[T] }

func (o order[T]) Touch(item T) { o.queue.push(item) }
func (o order[T]) Push(item T)  { o.queue.push(item) }
func (o order[T]) Len() int     { return len(o.queue.waiting) }
func (o order[T]) Pop() T {
	o.queue.drop(o.queue.turn)
	return o.queue.turn
}

// Add queues an item. An item that is already waiting is classified again.
func (q *Queue[T]) Add(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items.Add(item)
	q.cond.Broadcast()
}

// push puts an item into the lane of its class. The caller must hold mu.
func (q *Queue[T]) push(item T) {
	class, since := q.config.Class(item), q.config.Clock.Now()
	if before, waits := q.waiting[item]; waits {
		if before.class == class {
			return
		}
		since = before.since
		q.drop(item)
	}
	q.waiting[item] = waiting{class: class, since: since}
	q.lanes[class.lane()].add(class.Tenant, item)
	waitingItems.WithLabelValues(q.config.Name, laneNames[class.lane()]).Inc()
}

// drop removes a waiting item. The caller must hold mu.
func (q *Queue[T]) drop(item T) {
	class := q.waiting[item].class
	q.lanes[class.lane()].remove(class.Tenant, item)
	delete(q.waiting, item)
	waitingItems.WithLabelValues(q.config.Name, laneNames[class.lane()]).Dec()
}

// Len returns the number of waiting items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Get implements workqueue.TypedInterface for a worker of the ordinary lane.
func (q *Queue[T]) Get() (item T, shutdown bool) { return q.take(ordinaryLane) }

// take returns the next item for a worker of a pool. It blocks until an item is available and the
// pool has an idle worker.
func (q *Queue[T]) take(pool int) (item T, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.items.ShuttingDown() {
		if item, ok := q.next(pool); ok {
			return item, false
		}
		q.cond.Wait()
	}
	return item, true
}

// next takes the next item for a pool, if there is one. An idle worker of the ordinary lane also
// takes items of the priority lane, but not the reverse. The caller must hold mu.
func (q *Queue[T]) next(from int) (item T, ok bool) {
	p := &q.pools[from]
	if p.busy >= p.limit {
		return item, false
	}
	if item, ok = q.lanes[from].next(p.hasWorker); !ok && from == ordinaryLane {
		item, ok = q.lanes[priorityLane].next(p.hasWorker)
	}
	if !ok {
		return item, false
	}
	at := q.waiting[item]
	q.turn = item
	q.items.Get()
	waitSeconds.WithLabelValues(q.config.Name, laneNames[at.class.lane()]).Observe(q.config.Clock.Since(at.since).Seconds())
	q.handled[item] = handled{tenant: at.class.Tenant, pool: from}
	q.count(q.handled[item], 1)
	return item, true
}

// hasWorker reports whether the pool has an idle worker for a tenant.
func (p *pool) hasWorker(tenant string) bool {
	held, idle := p.tenants[tenant], p.limit-p.busy
	return held == 0 || held < p.perTenant && 2*held < idle
}

// count changes the number of busy workers. The caller must hold mu.
func (q *Queue[T]) count(h handled, change int) {
	p := &q.pools[h.pool]
	p.busy += change
	if p.tenants[h.tenant] += change; p.tenants[h.tenant] == 0 {
		delete(p.tenants, h.tenant)
	}
	busyWorkers.WithLabelValues(q.config.Name, laneNames[h.pool]).Set(float64(p.busy))
}

// Done ends the handling of an item and makes its worker idle. If the item was added in the
// meantime, it waits again.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h, known := q.handled[item]
	if !known {
		return
	}
	delete(q.handled, item)
	q.count(h, -1)
	q.items.Done(item)
	if q.items.ShuttingDown() {
		q.drain()
	}
	q.cond.Broadcast()
}

// Serve handles items until the queue is shut down, each item in its own goroutine. It returns when
// all items have been handled.
func (q *Queue[T]) Serve(ctx context.Context, handle func(ctx context.Context, item T)) {
	var dispatchers sync.WaitGroup
	for pool := range lanes {
		dispatchers.Go(func() {
			for {
				item, shutdown := q.take(pool)
				if shutdown {
					return
				}
				go func() {
					defer utilruntime.HandleCrashWithContext(ctx)
					defer q.Done(item)
					handle(ctx, item)
				}()
			}
		})
	}
	dispatchers.Wait()
	q.ShutDownWithDrain()
}

// ShutDown ends Serve and Get. It removes waiting items.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items.ShutDown()
	q.drain()
	q.cond.Broadcast()
}

// drain removes the waiting items, and updates the metrics. The caller must hold mu.
func (q *Queue[T]) drain() {
	for q.turn = range q.waiting {
		q.items.Get()
		q.items.Done(q.turn)
	}
}

// ShutDownWithDrain calls ShutDown, and returns when no worker handles an item.
func (q *Queue[T]) ShutDownWithDrain() {
	q.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.handled) > 0 {
		q.cond.Wait()
	}
}

// ShuttingDown reports whether the queue is shut down.
func (q *Queue[T]) ShuttingDown() bool { return q.items.ShuttingDown() }
