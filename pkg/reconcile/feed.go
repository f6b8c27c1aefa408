package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Feed maps the objects of an informer to the objects of a loop that depend on them. The loop does
// not start the informer.
type Feed struct {
	Informer cache.SharedIndexInformer
	// Keys returns the objects that depend on obj. It is called with both states of an
	// update.
	Keys func(obj any) []cache.ObjectName
	// Ignore reports whether an update affects no object. It is for objects that change often, but
	// whose relevant fields seldom change. It may be nil.
	Ignore func(old, obj any) bool
	// Delay is the time during which changes are collected before the objects are reconciled.
	Delay time.Duration
	// MaybeAbsent is for objects that a hub may not serve: the loop does not wait until they are
	// known.
	MaybeAbsent bool
	// OnceKnown returns objects to reconcile when all objects of the informer are known, even if
	// the informer has none. It may be nil.
	OnceKnown func() []cache.ObjectName
}

// Keys is a Feed.Keys for objects of one type.
func Keys[T any](keys func(T) []cache.ObjectName) func(obj any) []cache.ObjectName {
	return func(obj any) []cache.ObjectName {
		typed, ok := obj.(T)
		if !ok {
			return nil
		}
		return keys(typed)
	}
}

// Same is a Feed.Ignore for objects of one type.
func Same[T any](same func(old, obj T) bool) func(old, obj any) bool {
	return func(old, obj any) bool {
		before, ok := old.(T)
		after, also := obj.(T)
		return ok && also && same(before, after)
	}
}

// Always is a Feed.Ignore for objects of which only the existence matters.
func Always(_, _ any) bool { return true }

// Names returns the keys of objects.
func Names[T metav1.Object](objects []T) []cache.ObjectName {
	keys := make([]cache.ObjectName, 0, len(objects))
	for _, object := range objects {
		keys = append(keys, cache.MetaObjectToName(object))
	}
	return keys
}

// Listed returns the keys of the objects that a lister has returned.
func Listed[T metav1.Object](objects []T, err error) []cache.ObjectName {
	if err != nil {
		utilruntime.HandleError(err)
	}
	return Names(objects)
}

// OrNil returns what a lister or a client has returned, or nil for an object that does not exist.
func OrNil[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// Gone reports whether an error says that an object does not exist. The NotFound of a server that does not serve the resource
// does not say that.
func Gone(err error, name string) bool {
	status, ok := err.(apierrors.APIStatus)
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) &&
		ok && status.Status().Details != nil && status.Status().Details.Name == name
}

// Outdated reports whether a write failed because the object was changed or deleted after it was read. The event of that
// triggers the next attempt.
func Outdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// IgnoreOutdated returns nil for an Outdated error.
func IgnoreOutdated(err error) error {
	if Outdated(err) {
		return nil
	}
	return err
}

// Own returns the key of an object, which is also the key of objects of other kinds with the same
// name.
func Own(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(object)}
}

// ByName returns the name of an object without its namespace as the key.
func ByName(obj any) []cache.ObjectName {
	keys := Own(obj)
	for i := range keys {
		keys[i].Namespace = ""
	}
	return keys
}

// handler returns the event handler that adds objects to the queue.
func (f Feed) handler(q *queue) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		for _, key := range f.Keys(obj) {
			q.AddAfter(key, f.Delay) // immediately if Delay is zero
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(old, obj any) {
			if f.Ignore != nil && f.Ignore(old, obj) {
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

// DropManagedFields is a cache.TransformFunc that removes managed fields, to save memory.
func DropManagedFields(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// Optional is a resource that the hub may not serve, or may not allow the agent to watch.
type Optional struct {
	// Resource is the name of the resource in the log.
	Resource string

	absent atomic.Bool
}

// NotWatched is a cache.WatchErrorHandlerWithContext. It logs only once that the resource is
// absent.
func (o *Optional) NotWatched(ctx context.Context, reflector *cache.Reflector, err error) {
	if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		o.absent.Store(false)
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
		return
	}
	if !o.absent.Swap(true) {
		klog.FromContext(ctx).Info("The hub does not serve "+o.Resource+" to this agent; waiting until it does", "err", err)
	}
}

// Absent reports whether the last attempt to watch found that the resource is absent. The result
// has no meaning after the resource has been watched.
func (o *Optional) Absent() bool { return o.absent.Load() }
