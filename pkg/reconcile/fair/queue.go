// Package fair shares workers among tenants.
//
// A [Queue] passes items to workers in two lanes. The priority lane is for deletions and has its own
// workers. Within a lane, tenants take turns. The queue names workers that do not return.
package fair

import (
	"context"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Class is the scheduling class of an item.
type Class struct {
	// Priority puts the item into the priority lane, which does not wait for other items.
	Priority bool
	// Tenant is the party that shares workers with others.
	Tenant string
}

// Config configures a Queue. All fields are required.
type Config[T comparable] struct {
	// Name is the name of the queue in metrics.
	Name string
	// Class returns the current class of an item. It is called with the queue locked, whenever the
	// item is added, so it must neither block nor use the queue.
	Class func(T) Class
	// Workers handle the ordinary lane, at most WorkersPerTenant of them items of one tenant. While that
	// has no item for them, they help PriorityWorkers, which handle the priority lane only.
	Workers, WorkersPerTenant, PriorityWorkers int
	// StuckAfter is the time after which a worker that does not return is stuck.
	StuckAfter time.Duration
	Clock      clock.WithTicker
}

// Queue is a work queue that is fair among tenants. As in any work queue, only one worker handles an
// item at a time. After it is shut down, it passes the waiting items to workers and takes no others.
type Queue[T comparable] struct {
	// Typed contains the waiting items and the items in progress, and maintains the metrics that all
	// work queues have. It is used only while mu is held, so that it never blocks.
	*workqueue.Typed[T]
	config Config[T]

	mu   sync.Mutex
	cond *sync.Cond
	// waiting and handled are the waiting items and the items that workers handle.
	waiting, handled   map[T]*entry[T]
	ordinary, priority *lane[T]
	// turn is the item that is passed to a worker next.
	turn   T
	logger klog.Logger
}

// entry is an item that waits in a lane, or that a worker of a lane handles, since a time.
type entry[T comparable] struct {
	class Class
	lane  *lane[T]
	since time.Time
	// logged is true if the log says that the worker does not return.
	logged bool
}

// NewQueue returns an empty queue.
func NewQueue[T comparable](config Config[T]) *Queue[T] {
	q := &Queue[T]{
		config: config, waiting: map[T]*entry[T]{}, handled: map[T]*entry[T]{},
		ordinary: newLane[T]("ordinary", config.Workers, config.WorkersPerTenant),
		priority: newLane[T]("priority", config.PriorityWorkers, config.PriorityWorkers),
	}
	q.Typed = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: config.Name, Clock: config.Clock, Queue: order[T]{q}})
	q.cond = sync.NewCond(&q.mu)
	stuckWorkers.WithLabelValues(config.Name).Set(0)
	return q
}

// order makes the work queue return items in the order of a Queue.
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
	q.Typed.Add(item)
	q.cond.Signal()
}

// push puts an item into the lane of its class. The caller must hold mu.
func (q *Queue[T]) push(item T) {
	now := &entry[T]{class: q.config.Class(item), lane: q.ordinary, since: q.config.Clock.Now()}
	if now.class.Priority {
		now.lane = q.priority
	}
	if before := q.waiting[item]; before != nil {
		if now.since = before.since; before.class == now.class {
			return
		}
		q.drop(item)
	}
	q.waiting[item] = now
	now.lane.add(now.class.Tenant, item)
	waitingItems.WithLabelValues(q.config.Name, now.lane.name).Inc()
}

// drop removes a waiting item. The caller must hold mu.
func (q *Queue[T]) drop(item T) {
	at := q.waiting[item]
	at.lane.remove(at.class.Tenant, item)
	delete(q.waiting, item)
	waitingItems.WithLabelValues(q.config.Name, at.lane.name).Dec()
}

// Len returns the number of waiting items.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Serve handles items until the queue is shut down and empty, each item in its own goroutine.
func (q *Queue[T]) Serve(ctx context.Context, handle func(ctx context.Context, item T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.logger = klog.FromContext(ctx).WithValues("queue", q.config.Name)
	for !q.ShuttingDown() || len(q.waiting)+len(q.handled) > 0 {
		item, ok := q.next(q.priority)
		if !ok {
			item, ok = q.next(q.ordinary)
		}
		if !ok {
			q.cond.Wait()
			continue
		}
		go func() {
			defer utilruntime.HandleCrashWithContext(ctx)
			defer q.Done(item)
			handle(ctx, item)
		}()
	}
	stuckWorkers.WithLabelValues(q.config.Name).Set(0)
}

// next takes the next item for an idle worker of a lane, if there is one. A worker of the ordinary lane also
// takes items of the priority lane, but not the reverse. The caller must hold mu.
func (q *Queue[T]) next(workers *lane[T]) (item T, ok bool) {
	if item, ok = workers.next(workers.hasWorker); !ok && workers == q.ordinary {
		item, ok = q.priority.next(workers.hasWorker)
	}
	if !ok {
		return item, false
	}
	at := q.waiting[item]
	q.turn = item
	q.Get()
	waitSeconds.WithLabelValues(q.config.Name, at.lane.name).Observe(q.config.Clock.Since(at.since).Seconds())
	at.since, at.lane = time.Now(), workers
	q.handled[item] = at
	workers.count(at.class.Tenant, 1)
	return item, true
}

// Done ends the handling of an item and makes its worker idle. If the item was added in the
// meantime, it waits again.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.handled[item]
	delete(q.handled, item)
	at.lane.count(at.class.Tenant, -1)
	q.Typed.Done(item)
	q.cond.Signal()
}

// ShutDown ends Serve when all items are handled.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Typed.ShutDown()
	q.cond.Signal()
}
