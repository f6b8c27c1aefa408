// Package reconcile runs level-triggered loops. An object is reconciled whenever an object that it
// depends on changes, and again after a failure.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

// Defaults of the fields of Loop.
const (
	workers          = 16
	tenantWorkers    = 8
	urgentWorkers    = 2
	reconcileTimeout = 30 * time.Second
	firstRetry       = 100 * time.Millisecond
	lastRetry        = time.Minute
)

// Loop reconciles objects whenever one of its feeds changes. It must not be copied after its first use.
type Loop struct {
	// Name is the name in logs and metrics.
	Name  string
	Feeds []Feed
	// Initial are the objects to reconcile when the loop starts, even if they do not exist.
	Initial []cache.ObjectName
	// Reconcile is called again with exponential backoff after an error, and after the returned duration if that
	// is positive. See also RequeueAfter.
	Reconcile func(context.Context, cache.ObjectName) (time.Duration, error)

	// Urgent reports whether an object must be reconciled before others, such as an object that is
	// deleted or revoked. If Urgent is nil, no object is urgent. It must not block.
	Urgent func(cache.ObjectName) bool
	// Class returns the scheduling class of an object. Tenants share the workers. If Class is nil, Urgent
	// determines the lane, and the tenant is the namespace, or the name of an object without namespace.
	// It must not block.
	Class func(cache.ObjectName) fair.Class
	// Retry returns the delay before an object is retried after an error. If the result is negative, the object is
	// not retried. It may be nil. delay is the delay of the backoff.
	Retry func(key cache.ObjectName, err error, delay time.Duration) time.Duration

	// Workers is the number of objects that are reconciled in parallel. TenantWorkers limits the
	// objects of one tenant. UrgentWorkers is the number of additional workers for urgent objects.
	Workers, TenantWorkers, UrgentWorkers int
	// Timeout bounds one call of Reconcile.
	Timeout time.Duration
	// StuckTimeout is the time after which a worker that does not return is reported as stuck. It
	// defaults to twice Timeout.
	StuckTimeout time.Duration
	// Dispensable is true if the program works without the loop. Then only the metric and the log report stuck workers.
	Dispensable bool
	// FirstRetry and LastRetry bound the backoff.
	FirstRetry, LastRetry time.Duration
	// Clock measures the delays. It defaults to the real clock.
	Clock clock.WithTicker

	// Seconds measures the calls of Reconcile by result: success or error. It may be nil.
	Seconds *metrics.HistogramVec
	// ReportsStates is true if Reconcile calls SetState. If it is false, objects that wait for a
	// retry have the state failed, and other objects have none.
	ReportsStates bool

	queue atomic.Pointer[queue] // nil while the loop does not run
	// states are the states of the objects in the metric.
	states sync.Map
}

// StateFailed is the state of objects that wait for a retry.
const StateFailed = "failed"

// requeue is the error of RequeueAfter.
type requeue struct{ after time.Duration }

func (requeue) Error() string { return "the object is reconciled again" }

// RequeueAfter returns an error that makes the loop call Reconcile again after the given time. The
// error does not count as a failure, and it does not reset the backoff of previous failures.
func RequeueAfter(after time.Duration) error { return requeue{after} }

// reported is the error of Reported.
type reported struct{ error }

func (r reported) Unwrap() error { return r.error }

// Reported marks an error that the status of the object contains, usually because its author has to correct it. It is no
// error of this program in the log.
func Reported(err error) error { return reported{err} }

// ErrOutdated is the error of a write that failed because of a newer version of the object.
var ErrOutdated = errors.New("the object was changed by another writer")

// running contains the queues of the running loops.
var running sync.Map

// Stuck returns an error that names the objects from which workers do not return, or nil if there are none. Dispensable
// loops do not count.
func Stuck() error {
	var errs []error
	running.Range(func(l, q any) bool {
		if err := q.(*queue).lanes.Stuck(); !l.(*Loop).Dispensable {
			errs = append(errs, err)
		}
		return true
	})
	return errors.Join(errs...)
}

// queue adds objects to lanes, which pass them to workers.
type queue struct {
	workqueue.TypedDelayingInterface[cache.ObjectName]
	lanes   *fair.Queue[cache.ObjectName]
	backoff workqueue.TypedRateLimiter[cache.ObjectName]
	// logged contains the last error of each object that failed.
	logged sync.Map
}

func (l *Loop) newQueue() *queue {
	q := &queue{
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](
			cmp.Or(l.FirstRetry, firstRetry), cmp.Or(l.LastRetry, lastRetry)),
	}
	var ticker clock.WithTicker = clock.RealClock{}
	if l.Clock != nil {
		ticker = l.Clock
	}
	q.lanes = fair.NewQueue(fair.Config[cache.ObjectName]{
		Name: l.Name, Clock: ticker, Class: l.class, StuckAfter: cmp.Or(l.StuckTimeout, 2*l.timeout()),
		Workers: cmp.Or(l.Workers, workers), WorkersPerTenant: cmp.Or(l.TenantWorkers, tenantWorkers), PriorityWorkers: cmp.Or(l.UrgentWorkers, urgentWorkers),
	})
	q.TypedDelayingInterface = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Name: l.Name, Clock: ticker, Queue: q.lanes})
	return q
}

func (l *Loop) class(key cache.ObjectName) fair.Class {
	if l.Class != nil {
		return l.Class(key)
	}
	return fair.Class{Priority: l.Urgent != nil && l.Urgent(key), Tenant: cmp.Or(key.Namespace, key.Name)}
}

// Add queues an object. It has no effect while the loop does not run.
func (l *Loop) Add(key cache.ObjectName) {
	if q := l.queue.Load(); q != nil {
		q.Add(key)
	}
}

// Len returns the number of objects that wait for a worker.
func (l *Loop) Len() int {
	if q := l.queue.Load(); q != nil {
		return q.Len()
	}
	return 0
}

// Forget resets the backoff of an object.
func (l *Loop) Forget(key cache.ObjectName) {
	if q := l.queue.Load(); q != nil {
		q.backoff.Forget(key)
	}
}

func (l *Loop) timeout() time.Duration { return cmp.Or(l.Timeout, reconcileTimeout) }

// SetState sets the state of an object in the metric. The empty state removes the object from the
// metric.
func (l *Loop) SetState(key cache.ObjectName, state string) {
	var before any
	if state == "" {
		before, _ = l.states.LoadAndDelete(key)
	} else {
		before, _ = l.states.Swap(key, state)
		objectsByState.WithLabelValues(l.Name, state).Inc()
	}
	if before, ok := before.(string); ok {
		objectsByState.WithLabelValues(l.Name, before).Dec()
	}
}

// Run reconciles objects until ctx ends, and returns after every worker has stopped. It may be
// called again afterwards, but not concurrently.
func (l *Loop) Run(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	defer utilruntime.HandleCrashWithContext(ctx)
	q := l.newQueue()
	l.queue.Store(q)
	running.Store(l, q)
	var tasks sync.WaitGroup
	defer func() {
		q.ShutDown()
		tasks.Wait()
		// The objects that still wait are only removed, also if an informer was stopped.
		ended, end := context.WithCancel(ctx)
		end()
		l.serve(ended, q)
		l.queue.Store(nil)
		running.Delete(l)
		// Another replica may take over, or another loop with the same name may start.
		l.states.Range(func(key, _ any) bool {
			l.SetState(key.(cache.ObjectName), "")
			return true
		})
	}()

	var synced []cache.InformerSynced
	for _, feed := range l.Feeds {
		// The handler receives all existing objects, so that each is reconciled once.
		registration, err := feed.Informer.AddEventHandler(feed.handler(q))
		if err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Failed to watch for changes", "loop", l.Name)
			return
		}
		defer func() {
			if err := feed.Informer.RemoveEventHandler(registration); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "Failed to stop watching for changes", "loop", l.Name)
			}
		}()
		if !feed.MaybeAbsent {
			synced = append(synced, registration.HasSynced)
		}
		if feed.OnceKnown != nil {
			tasks.Go(func() {
				if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
					return
				}
				for _, key := range feed.OnceKnown() {
					q.Add(key)
				}
			})
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	for _, key := range l.Initial {
		q.Add(key)
	}
	tasks.Go(func() { l.serve(ctx, q) })
	<-ctx.Done()
}

// serve reconciles the objects of the queue until it is shut down.
func (l *Loop) serve(ctx context.Context, q *queue) {
	q.lanes.Serve(ctx, func(ctx context.Context, key cache.ObjectName) { l.handle(ctx, q, key) })
}

func (l *Loop) handle(ctx context.Context, q *queue, key cache.ObjectName) {
	if ctx.Err() != nil {
		return
	}
	logger := klog.FromContext(ctx).WithValues("loop", l.Name, "object", key)
	objectCtx, cancel := context.WithTimeout(klog.NewContext(ctx, logger), l.timeout())
	defer cancel()
	start := time.Now()
	after, err := l.Reconcile(objectCtx, key)
	if ctx.Err() != nil {
		return
	}
	var again requeue
	if errors.As(err, &again) {
		q.AddAfter(key, again.after)
		err = nil
	} else if err == nil {
		q.backoff.Forget(key)
		q.logged.Delete(key)
		if after > 0 {
			q.AddAfter(key, after)
		}
	}
	l.observe(key, time.Since(start), err)
	if err != nil {
		l.retry(logger, q, key, err)
	}
}

func (l *Loop) observe(key cache.ObjectName, took time.Duration, err error) {
	result, state := "success", ""
	if err != nil {
		result, state = "error", StateFailed
	}
	if l.Seconds != nil {
		l.Seconds.WithLabelValues(result).Observe(took.Seconds())
	}
	if !l.ReportsStates {
		l.SetState(key, state)
	}
}

func (l *Loop) retry(logger klog.Logger, q *queue, key cache.ObjectName, err error) {
	// The delay is at most the delay of the backoff, so that the backoff bounds the wait time of an
	// object.
	delay := wait.Jitter(q.backoff.When(key)*2/3, 0.5)
	if l.Retry != nil {
		delay = l.Retry(key, err, delay)
	}
	if delay < 0 {
		return
	}
	q.AddAfter(key, delay)
	before, _ := q.logged.Swap(key, err.Error())
	if before == err.Error() || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, ErrOutdated) {
		logger.V(2).Info("Failed to reconcile the object; it is retried", "err", err, "failures", q.backoff.NumRequeues(key), "retryAfter", delay)
		return
	}
	if _, isReported := err.(reported); isReported {
		logger.Info("Reported a failure in the status of the object; it is retried", "err", err, "failures", q.backoff.NumRequeues(key), "retryAfter", delay)
		return
	}
	logger.Error(err, "Failed to reconcile the object; it is retried", "failures", q.backoff.NumRequeues(key), "retryAfter", delay)
}
