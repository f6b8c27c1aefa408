// Package feed is what the controllers of the agent share: how they learn of
// changes, and how they go through what has changed.
package feed

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

// DropManagedFields is a cache.TransformFunc that keeps managed fields out of memory.
func DropManagedFields(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// OnChange lets changed see every object of an informer that comes, changes or
// goes. What it returns reports whether changed has seen all that there was at first.
func OnChange(informer cache.SharedIndexInformer, changed func(metav1.Object)) (cache.InformerSynced, error) {
	see := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if object, err := meta.Accessor(obj); err == nil {
			changed(object)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }, DeleteFunc: see,
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

// Optional is about a resource that a hub may not have for the agent: it does not
// serve it, or does not allow the agent to see it.
type Optional struct {
	// Resource is its name in the log.
	Resource string

	absent atomic.Bool
}

// NotWatched is a cache.WatchErrorHandlerWithContext. It keeps quiet about a hub
// that does not have the resource, after having said so once.
func (o *Optional) NotWatched(ctx context.Context, reflector *cache.Reflector, err error) {
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		o.absent.Store(false)
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
		return
	}
	if !o.absent.Swap(true) {
		klog.FromContext(ctx).Info("The hub has no "+o.Resource+" for this agent; waiting for them", "err", err)
	}
}

// Absent reports whether the hub said last that it does not have the resource.
// It means nothing once the resource has been watched.
func (o *Optional) Absent() bool { return o.absent.Load() }

// stuckTime is how long a worker may neither return nor make a request.
const stuckTime = 30 * time.Second

// Work calls pass with one name of the queue after another, until ctx ends or
// the queue is shut down. Several may work on one queue. The watchdog finds those that
// do not return.
func Work(ctx context.Context, queue workqueue.TypedInterface[string], watchdog *fair.Watchdog, pass func(ctx context.Context, name string)) {
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			passCtx, end := watchdog.Begin(ctx, name, stuckTime, nil)
			pass(passCtx, name)
			end()
		}
		queue.Done(name)
		if ctx.Err() != nil {
			return
		}
	}
}
