// Package reconcile runs level-triggered loops: an object is looked at whenever
// something that it depends on changes, and again after a failure.
package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	// workers is how many objects a loop reconciles at the same time, tenantWorkers how
	// many of one tenant.
	workers       = 16
	tenantWorkers = 8
	// urgentWorkers is how many workers there are in addition for urgent objects.
	urgentWorkers    = 2
	reconcileTimeout = 30 * time.Second
	// stuckTime is when a worker is stuck. It has disregarded the end of its context for
	// as long as it may reconcile.
	stuckTime  = 2 * reconcileTimeout
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// Loop reconciles objects, level triggered, whenever one of its feeds changes.
type Loop struct {
	// Name of the loop in logs and in the metrics of its queue.
	Name  string
	Feeds []Feed
	// Initial are looked at when the loop starts, whether they exist or not.
	Initial []cache.ObjectName
	// Reconcile makes an object what it should be. An error tries again with
	// exponential backoff, a positive duration after that time.
	Reconcile func(context.Context, cache.ObjectName) (time.Duration, error)
	// Tenant returns whose object it is, among whom workers are shared. If it is nil,
	// that is the namespace, or the object itself if it has none. It must not block.
	Tenant func(cache.ObjectName) string
	// Urgent reports whether an object has to be reconciled before others, such as one
	// that is deleted or revoked; none if nil. It must not block.
	Urgent func(cache.ObjectName) bool
}

// watchdogs are those of the loops that run.
var watchdogs sync.Map

// Stuck returns an error that names the objects from which workers of any loop do not
// return, or nil if there are none.
func Stuck() error {
	var errs []error
	watchdogs.Range(func(dog, _ any) bool {
		if watchdog, ok := dog.(*fair.Watchdog); ok {
			errs = append(errs, watchdog.Err())
		}
		return true
	})
	return errors.Join(errs...)
}

// Feed says which objects a change of another one concerns. Somebody else starts
// the informer.
type Feed struct {
	Informer cache.SharedIndexInformer
	// Keys are the objects that obj concerns. Of an update, those that the former
	// state concerned are looked at too.
	Keys func(obj any) []cache.ObjectName
	// Ignore tells which updates concern nothing; nil ignores none. It is for
	// objects that change often, and seldom in what matters.
	Ignore func(old, obj any) bool
	// Delay is how long changes are gathered before they are looked at together.
	Delay time.Duration
	// MaybeAbsent is for objects that a hub may not have at all: the loop does not
	// wait until they are known.
	MaybeAbsent bool
	// OnceKnown are looked at when all objects of the informer have become known, if
	// that there are none matters; may be nil.
	OnceKnown func() []cache.ObjectName
}

// Own is the key of an object itself, or of one of another kind with the same name.
func Own(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(object)}
}

// queue adds objects to lanes, which hands them to workers.
type queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]
	lanes    *fair.Queue[cache.ObjectName]
	watchdog *fair.Watchdog
}

func (l *Loop) newQueue() *queue {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry)
	lanes := fair.NewQueue(fair.Config[cache.ObjectName]{
		Name: l.Name, Workers: workers, WorkersPerTenant: tenantWorkers, PriorityWorkers: urgentWorkers,
		Class: func(key cache.ObjectName) fair.Class {
			return fair.Class{Priority: l.Urgent != nil && l.Urgent(key), Tenant: l.tenant(key), Failed: backoff.NumRequeues(key) > 0}
		},
	})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Name: l.Name, Queue: lanes})
	return &queue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(backoff,
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{DelayingQueue: delaying}),
		lanes: lanes, watchdog: fair.NewWatchdog(l.Name, nil),
	}
}

func (l *Loop) tenant(key cache.ObjectName) string {
	switch {
	case l.Tenant != nil:
		return l.Tenant(key)
	case key.Namespace != "":
		return key.Namespace
	}
	return key.Name
}

// Run reconciles until ctx ends, and returns once every worker has stopped. It
// may run again afterwards, but not twice at once.
func (l *Loop) Run(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	defer utilruntime.HandleCrashWithContext(ctx)
	q := l.newQueue()
	watchdogs.Store(q.watchdog, nil)
	defer watchdogs.Delete(q.watchdog)
	var running sync.WaitGroup
	defer running.Wait()
	defer q.ShutDown()

	var synced []cache.InformerSynced
	for _, feed := range l.Feeds {
		// Adding the handler replays every object, so that each is looked at
		// once by whoever has just become the one that acts.
		registration, err := feed.Informer.AddEventHandler(handler(q, feed))
		if err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "watching for changes")
			return
		}
		defer func() {
			if err := feed.Informer.RemoveEventHandler(registration); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "no longer watching for changes")
			}
		}()
		if !feed.MaybeAbsent {
			synced = append(synced, registration.HasSynced)
		}
		if feed.OnceKnown != nil {
			running.Go(func() {
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
	running.Go(func() { q.watchdog.Run(ctx) })
	running.Go(func() { l.serve(ctx, q) })
	<-ctx.Done()
}

func handler(q *queue, feed Feed) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		for _, key := range feed.Keys(obj) {
			q.AddAfter(key, feed.Delay) // at once if there is none
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(old, obj any) {
			if feed.Ignore != nil && feed.Ignore(old, obj) {
				return
			}
			enqueue(old)
			enqueue(obj)
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			enqueue(obj)
		},
	}
}

// serve reconciles what the queue has until it is shut down.
func (l *Loop) serve(ctx context.Context, q *queue) {
	q.lanes.Serve(ctx, func(ctx context.Context, key cache.ObjectName, _ fair.Class) { l.handle(ctx, q, key) })
}

func (l *Loop) handle(ctx context.Context, q *queue, key cache.ObjectName) {
	if ctx.Err() != nil {
		return
	}
	ctx, end := q.watchdog.Begin(ctx, key.String(), stuckTime, func() { q.lanes.Abandon(key) })
	defer end()
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	after, err := l.Reconcile(ctx, key)
	if err != nil {
		klog.FromContext(ctx).Error(err, "tried again later", "loop", l.Name, "object", key, "tries", q.NumRequeues(key)+1)
		q.AddRateLimited(key)
		return
	}
	q.Forget(key)
	if after > 0 {
		q.AddAfter(key, after)
	}
}
