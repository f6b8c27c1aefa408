package fair

import (
	"context"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

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
// a delaying and a rate-limiting queue can be built on it. As in any work queue, only one worker
// handles an item at a time.
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
	// waiting contains the class of each waiting item, and the time since which it waits.
	waiting map[T]waiting
	// processing contains the items that workers handle.
	processing map[T]*held
	lanes      [lanes]lane[T]
	pools      [lanes]pool
	// turn is the item that is passed to a worker next.
	turn T
	// passes is the number of passes for which Serve has to wait.
	passes       int
	shuttingDown bool
}

var _ workqueue.TypedInterface[string] = (*Queue[string])(nil)

type waiting struct {
	class Class
	since time.Time
}

// lane holds the waiting items of a lane.
type lane[T comparable] struct {
	fresh, failed *flows[T]
	// failedNext is true if failed items have the next turn.
	failedNext bool
}

// pool counts the workers of a lane.
type pool struct {
	limit, perTenant int
	busy, failing    int
	// abandoned is the number of workers that were abandoned and replaced.
	abandoned int
	tenants   map[string]int
}

// held is an item that a worker of a pool handles.
type held struct {
	class     Class
	pool      int
	abandoned bool
}

// NewQueue returns an empty queue.
func NewQueue[T comparable](config Config[T]) *Queue[T] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	q := &Queue[T]{config: config, waiting: map[T]waiting{}, processing: map[T]*held{}}
	q.items = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: config.Name, Clock: config.Clock, Queue: order[T]{q}})
	q.cond = sync.NewCond(&q.mu)
	for i := range q.lanes {
		q.lanes[i] = lane[T]{fresh: newFlows[T](), failed: newFlows[T]()}
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
func (o order[T]) Pop() T       { return o.queue.pop() }

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
		q.drop(item, before.class)
	}
	q.waiting[item] = waiting{class: class, since: since}
	q.flows(class).push(class.Tenant, item)
	q.countWaiting(class, 1)
}

// drop removes a waiting item. The caller must hold mu.
func (q *Queue[T]) drop(item T, class Class) {
	q.flows(class).remove(class.Tenant, item)
	q.countWaiting(class, -1)
	delete(q.waiting, item)
}

// pop removes the item that has the next turn. The caller must hold mu.
func (q *Queue[T]) pop() T {
	q.drop(q.turn, q.waiting[q.turn].class)
	return q.turn
}

func (q *Queue[T]) flows(class Class) *flows[T] {
	if class.Failed {
		return q.lanes[class.lane()].failed
	}
	return q.lanes[class.lane()].fresh
}

func (q *Queue[T]) countWaiting(class Class, change float64) {
	waitingItems.WithLabelValues(q.config.Name, laneNames[class.lane()]).Add(change)
}

// Len returns the number of waiting items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Get returns the next item for a worker of the ordinary lane, or reports that the queue is shut
// down.
func (q *Queue[T]) Get() (item T, shutdown bool) {
	item, _, shutdown = q.take(ordinaryLane)
	return item, shutdown
}

// take returns the next item for a worker of a pool. It blocks until an item is available and the
// pool has an idle worker.
func (q *Queue[T]) take(of int) (T, Class, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.shuttingDown {
		if item, class, ok := q.next(of); ok {
			return item, class, false
		}
		q.cond.Wait()
	}
	var none T
	return none, Class{}, true
}

// next takes the next item for a pool, if there is one. An idle worker of the ordinary lane also
// takes items of the priority lane, but not the reverse. The caller must hold mu.
func (q *Queue[T]) next(of int) (item T, class Class, ok bool) {
	p := &q.pools[of]
	if p.busy >= p.limit {
		return item, class, false
	}
	from := []int{of}
	if of == ordinaryLane {
		from = append(from, priorityLane)
	}
	for _, lane := range from {
		if item, ok = q.lanes[lane].next(p); !ok {
			continue
		}
		at := q.waiting[item]
		q.turn = item
		q.items.Get()
		waitSeconds.WithLabelValues(q.config.Name, laneNames[at.class.lane()]).Observe(q.config.Clock.Since(at.since).Seconds())
		q.processing[item] = &held{class: at.class, pool: of}
		p.busy++
		p.tenants[at.class.Tenant]++
		if at.class.Failed {
			p.failing++
		}
		q.passes++
		busyWorkers.WithLabelValues(q.config.Name, laneNames[of]).Set(float64(p.busy))
		return item, at.class, true
	}
	return item, class, false
}

// next returns the next item for which a pool has a worker. Failed items and other items take
// turns.
func (l *lane[T]) next(p *pool) (T, bool) {
	for _, failed := range []bool{l.failedNext, !l.failedNext} {
		flows := l.fresh
		if failed {
			if p.failing >= max(1, p.limit/2) {
				continue
			}
			flows = l.failed
		}
		if item, ok := flows.next(p.has); ok {
			l.failedNext = !failed
			return item, true
		}
	}
	var none T
	return none, false
}

// has reports whether the pool has an idle worker for a tenant.
func (p *pool) has(tenant string) bool {
	held, idle := p.tenants[tenant], p.limit-p.busy
	return held == 0 || held < p.perTenant && 2*held < idle
}

// Done ends the handling of an item and makes its worker idle. If the item was added in the
// meantime, it waits again.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.processing[item]
	if h == nil {
		return
	}
	delete(q.processing, item)
	p := &q.pools[h.pool]
	if h.abandoned {
		p.abandoned--
	} else {
		q.release(h)
	}
	if p.tenants[h.class.Tenant]--; p.tenants[h.class.Tenant] == 0 {
		delete(p.tenants, h.class.Tenant)
	}
	q.items.Done(item)
	if q.shuttingDown {
		q.drain()
	}
	q.cond.Broadcast()
}

// release makes the worker of an item idle. The caller must hold mu.
func (q *Queue[T]) release(h *held) {
	p := &q.pools[h.pool]
	p.busy--
	if h.class.Failed {
		p.failing--
	}
	q.passes--
	busyWorkers.WithLabelValues(q.config.Name, laneNames[h.pool]).Set(float64(p.busy))
}

// Abandon replaces a worker that does not return, so that other items do not wait for it. The
// worker keeps its item, and the item still counts in the share of its tenant. A lane replaces at
// most as many workers as it has.
func (q *Queue[T]) Abandon(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.processing[item]
	if h == nil || h.abandoned || q.pools[h.pool].abandoned >= q.pools[h.pool].limit {
		return
	}
	h.abandoned = true
	q.pools[h.pool].abandoned++
	q.release(h)
	q.cond.Broadcast()
}

// Serve handles items until the queue is shut down, each item in its own goroutine. It returns when
// all items except the abandoned ones have been handled.
func (q *Queue[T]) Serve(ctx context.Context, handle func(ctx context.Context, item T, class Class)) {
	var dispatchers sync.WaitGroup
	for pool := range lanes {
		dispatchers.Go(func() {
			for {
				item, class, shutdown := q.take(pool)
				if shutdown {
					return
				}
				go func() {
					defer utilruntime.HandleCrashWithContext(ctx)
					defer q.Done(item)
					handle(ctx, item, class)
				}()
			}
		})
	}
	dispatchers.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.passes > 0 {
		q.cond.Wait()
	}
}

// ShutDown ends Serve and Get. It removes waiting items.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shuttingDown {
		return
	}
	q.shuttingDown = true
	q.drain()
	q.items.ShutDown()
	q.cond.Broadcast()
}

// drain removes the waiting items, and updates the metrics. The caller must hold mu.
func (q *Queue[T]) drain() {
	for item := range q.waiting {
		q.turn = item
		q.items.Get()
		q.items.Done(item)
	}
}

// ShutDownWithDrain calls ShutDown, and returns when no worker handles an item.
func (q *Queue[T]) ShutDownWithDrain() {
	q.ShutDown()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.passes > 0 {
		q.cond.Wait()
	}
}

// ShuttingDown reports whether the queue is shut down.
func (q *Queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shuttingDown
}
