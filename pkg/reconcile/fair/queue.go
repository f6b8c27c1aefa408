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

func (c Class) lane() int {
	if c.Priority {
		return priorityLane
	}
	return ordinaryLane
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
	waiting, handled map[T]*entry
	lanes            [lanes]lane[T]
	// turn is the item that is passed to a worker next.
	turn   T
	logger klog.Logger
}

// entry is an item that waits, or that a worker handles, since a time.
type entry struct {
	class Class
	since time.Time
	// worker is the lane of the worker. stuck is true if the worker has not returned before watchdog
	// fired.
	worker   int
	watchdog *time.Timer
	stuck    bool
}

// NewQueue returns an empty queue.
func NewQueue[T comparable](config Config[T]) *Queue[T] {
	q := &Queue[T]{config: config, waiting: map[T]*entry{}, handled: map[T]*entry{}}
	q.Typed = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: config.Name, Clock: config.Clock, Queue: order[T]{q}})
	q.cond = sync.NewCond(&q.mu)
	q.lanes = [lanes]lane[T]{newLane[T](config.Workers, config.WorkersPerTenant), newLane[T](config.PriorityWorkers, config.PriorityWorkers)}
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
	now := &entry{class: q.config.Class(item), since: q.config.Clock.Now()}
	if before := q.waiting[item]; before != nil {
		now.since = before.since
		if before.class == now.class {
			return
		}
		q.drop(item)
	}
	q.waiting[item] = now
	q.lanes[now.class.lane()].add(now.class.Tenant, item)
	waitingItems.WithLabelValues(q.config.Name, laneNames[now.class.lane()]).Inc()
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

// Serve handles items until the queue is shut down and empty, each item in its own goroutine.
func (q *Queue[T]) Serve(ctx context.Context, handle func(ctx context.Context, item T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.logger = klog.FromContext(ctx).WithValues("queue", q.config.Name)
	for !q.ShuttingDown() || len(q.waiting)+len(q.handled) > 0 {
		item, ok := q.next(priorityLane)
		if !ok {
			item, ok = q.next(ordinaryLane)
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
}

// next takes the next item for a worker of a lane, if there is one. An idle worker of the ordinary lane
// also takes items of the priority lane, but not the reverse. The caller must hold mu.
func (q *Queue[T]) next(worker int) (item T, ok bool) {
	workers := &q.lanes[worker]
	if workers.busy == workers.workers {
		return item, false
	}
	if item, ok = workers.next(workers.hasWorker); !ok && worker == ordinaryLane {
		item, ok = q.lanes[priorityLane].next(workers.hasWorker)
	}
	if !ok {
		return item, false
	}
	at := q.waiting[item]
	q.turn = item
	q.Get()
	waitSeconds.WithLabelValues(q.config.Name, laneNames[at.class.lane()]).Observe(q.config.Clock.Since(at.since).Seconds())
	at.since, at.worker = time.Now(), worker
	at.watchdog = time.AfterFunc(q.config.StuckAfter, func() { q.stuck(item, at) })
	q.handled[item] = at
	q.count(at, 1)
	return item, true
}

// count changes the number of busy workers. The caller must hold mu.
func (q *Queue[T]) count(at *entry, change int) {
	q.lanes[at.worker].count(at.class.Tenant, change)
	busyWorkers.WithLabelValues(q.config.Name, laneNames[at.worker]).Set(float64(q.lanes[at.worker].busy))
}

// Done ends the handling of an item and makes its worker idle. If the item was added in the
// meantime, it waits again.
func (q *Queue[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.handled[item]
	delete(q.handled, item)
	q.count(at, -1)
	q.returned(item, at)
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
