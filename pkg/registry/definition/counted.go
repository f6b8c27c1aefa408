package definition

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/quota"
)

// counted enforces the limits of objects, the quota of a namespace and the write rates of callers.
// Nothing refuses a deletion, or an update that removes a finalizer of an object that is being deleted and does not grow it.
type counted struct {
	// counter is nil for a resource without a quota.
	counter *quota.Counter
	parts   func(runtime.Object) quota.Parts
	// resource has the limits of objects and the write rates.
	resource *Resource
}

func (c counted) countCreate(store *genericregistry.Store, ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	w := c.begin()
	created, err := store.Create(ctx, obj, w.admitCreate(admit), options)
	w.settle(created, err, dryrun.IsDryRun(options.DryRun))
	return created, err
}

func (c counted) countUpdate(store *genericregistry.Store, ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	w := c.begin()
	updated, created, err := store.Update(ctx, name, rest.WrapUpdatedObjectInfo(objInfo, c.limit), w.admitCreate(admitCreate), w.admitUpdate(admitUpdate), forceAllowCreate, options)
	w.settle(updated, err, dryrun.IsDryRun(options.DryRun))
	return updated, created, err
}

// limit is a rest.TransformFunc that refuses an object over its limits. It runs before validation,
// because the errors of metadata with thousands of invalid labels take seconds to write.
func (c counted) limit(_ context.Context, obj, old runtime.Object) (runtime.Object, error) {
	var before *quota.Parts
	if stored := c.parts(old); stored.Meta != nil && stored.Meta.GetResourceVersion() != "" {
		before = &stored
	}
	parts := c.parts(obj)
	if errs := c.resource.Limits.Check(c.resource.Name, parts, before); len(errs) > 0 {
		return nil, apierrors.NewInvalid(c.resource.Versions[0].WithKind(c.resource.Kind).GroupKind(), parts.Meta.GetName(), errs)
	}
	return obj, nil
}

// writing is one write of a store.
type writing struct {
	counted
	// hold is nil for a resource without a quota.
	hold *quota.Hold
	// undo reverts the count of written bytes.
	undo func()
	// before is the resource version before an update.
	before string
}

func (c counted) begin() *writing {
	w := &writing{counted: c, undo: func() {}}
	if c.counter != nil {
		w.hold = c.counter.Hold()
	}
	return w
}

// admitCreate reserves quota for a new object after all other admission.
func (w *writing) admitCreate(admit rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if err := admit(ctx, obj); err != nil {
			return err
		}
		meta := w.parts(obj).Meta
		return w.take(ctx, quota.Write{
			Namespace: meta.GetNamespace(), Name: meta.GetName(), After: quota.ObjectSize(obj), Creates: true, Reserve: ByServer(ctx),
		})
	}
}

// admitUpdate reserves quota for the growth of an object after all other admission.
func (w *writing) admitUpdate(admit rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		if err := admit(ctx, obj, old); err != nil {
			return err
		}
		now, before := w.parts(obj), w.parts(old)
		w.before = before.Meta.GetResourceVersion()
		// The update that removes the last finalizer stores nothing: it deletes the object.
		if genericregistry.ShouldDeleteDuringUpdate(ctx, "", obj, old) {
			return nil
		}
		write := quota.Write{Namespace: now.Meta.GetNamespace(), Name: now.Meta.GetName(), Before: quota.ObjectSize(old), After: quota.ObjectSize(obj)}
		if write.After > write.Before {
			write.Upkeep = upkeep(now, before)
			write.Reserve = write.Upkeep || ByServer(ctx)
		} else if now.Meta.GetDeletionTimestamp() != nil && len(now.Meta.GetFinalizers()) < len(before.Meta.GetFinalizers()) {
			// Write rates must not delay a deletion.
			return nil
		}
		return w.take(ctx, write)
	}
}

// take reserves quota for a write, and counts its bytes. A store may try a write several times, so the count replaces that of the
// previous try.
func (w *writing) take(ctx context.Context, write quota.Write) error {
	if w.hold != nil {
		if err := w.hold.Take(ctx, write); err != nil {
			return err
		}
	}
	w.undo()
	undo, err := w.resource.Written.Take(ctx, write.Namespace, write.After)
	if err != nil {
		undo = func() {}
	}
	w.undo = undo
	return err
}

// settle ends a write: it releases the reservation, and counts the stored object.
func (w *writing) settle(stored runtime.Object, err error, dryRun bool) {
	failed := err != nil || dryRun || stored == nil
	if failed || w.before != "" && w.parts(stored).Meta.GetResourceVersion() == w.before {
		w.undo()
	}
	if w.hold == nil {
		return
	}
	if !failed {
		meta := w.parts(stored).Meta
		// The update that removes the last finalizer deletes the object.
		failed = meta.GetDeletionTimestamp() != nil && len(meta.GetFinalizers()) == 0
	}
	if failed {
		w.hold.Settle(nil, 0)
		return
	}
	w.hold.Settle(stored, quota.ObjectSize(stored))
}

// upkeep reports whether an update changes only the status, the finalizers or the managed fields. Without a status, nobody
// but the author of an object has to write to it, so a full namespace needs no room for more.
func upkeep(now, before quota.Parts) bool {
	return now.Status != nil &&
		maps.Equal(now.Meta.GetLabels(), before.Meta.GetLabels()) &&
		maps.Equal(now.Meta.GetAnnotations(), before.Meta.GetAnnotations()) &&
		equality.Semantic.DeepEqual(now.Meta.GetOwnerReferences(), before.Meta.GetOwnerReferences()) &&
		equality.Semantic.DeepEqual(now.Spec, before.Spec)
}

// serveCounter makes the counter of the resource count the objects of the store.
func (r *Resource) serveCounter(store *genericregistry.Store) {
	if r.Counter == nil {
		return
	}
	r.Counter.Serve(r.source(store), r.New())
	store.AfterDelete = func(obj runtime.Object, _ *metav1.DeleteOptions) { r.Counter.Deleted(obj) }
}

// source lists and watches a store in this process. It returns the objects of the watch cache
// in the internal version, without encoding them.
func (r *Resource) source(store *genericregistry.Store) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			internal, err := internalOptions(options)
			if err != nil {
				return nil, err
			}
			return store.List(r.requestContext(ctx, store, "list", metav1.NamespaceAll), internal)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			internal, err := internalOptions(options)
			if err != nil {
				return nil, err
			}
			events, err := store.Watch(r.requestContext(ctx, store, "watch", metav1.NamespaceAll), internal)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
				// The watch cache wraps the objects of an event for three or more watchers, to encode them once.
				if wrapped, ok := event.Object.(runtime.CacheableObject); ok {
					event.Object = wrapped.GetObject()
				}
				return event, true
			}), nil
		},
	}
}

func internalOptions(options metav1.ListOptions) (*metainternalversion.ListOptions, error) {
	out := &metainternalversion.ListOptions{}
	return out, metainternalversion.Convert_v1_ListOptions_To_internalversion_ListOptions(&options, out, nil)
}
