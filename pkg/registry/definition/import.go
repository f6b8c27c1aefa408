package definition

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
)

// discardWorkers is the number of objects that Discard removes at the same time.
const discardWorkers = 16

// ImportOptions configure an import.
type ImportOptions struct {
	// DryRun checks the object and stores nothing.
	DryRun bool
	// Adopt imports an object from the server of another hub: it keeps what only a server writes, and refuses to replace a
	// stored object with another UID unless its strategy allows that.
	Adopt bool
}

// Import stores an object of the internal type as it is elsewhere: with its UID, times, generation, finalizers,
// managed fields and status. It replaces a stored object of that name. The spec is validated and the limits of an
// object apply, but neither admission nor quotas do. The errors are API errors.
func (r *REST) Import(ctx context.Context, obj runtime.Object, options ImportOptions) (runtime.Object, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	ctx = r.Context(ctx, "create", accessor.GetNamespace())
	accessor.SetResourceVersion("")
	if !options.Adopt {
		r.importing.prepareForImport(ctx, obj)
	}
	if errs := r.validateImport(ctx, obj, accessor); len(errs) > 0 {
		return nil, apierrors.NewInvalid(r.resource.Versions[0].WithKind(r.resource.Kind).GroupKind(), accessor.GetName(), first(errs))
	}
	key, err := r.KeyFunc(ctx, accessor.GetName())
	if err != nil {
		return nil, err
	}
	out := r.New()
	err = r.Storage.GuaranteedUpdate(ctx, key, out, true, nil, func(current runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if options.Adopt {
			stored, err := meta.Accessor(current)
			if err != nil {
				return nil, nil, err
			}
			if uid := stored.GetUID(); uid != "" && uid != accessor.GetUID() && !r.importing.replaceable(current) {
				return nil, nil, apierrors.NewConflict(r.resource.GroupResource(), accessor.GetName(), fmt.Errorf("an object with another UID, %s, exists", uid))
			}
		}
		return obj.DeepCopyObject(), nil, nil
	}, options.DryRun, nil)
	if err != nil {
		return nil, storeerr.InterpretUpdateError(err, r.resource.GroupResource(), accessor.GetName())
	}
	return out, nil
}

func (r *REST) validateImport(ctx context.Context, obj runtime.Object, accessor metav1.Object) field.ErrorList {
	path := field.NewPath("metadata")
	var errs field.ErrorList
	if accessor.GetUID() == "" {
		errs = append(errs, field.Required(path.Child("uid"), "an import keeps the UID of the object"))
	}
	switch namespace := accessor.GetNamespace(); {
	case r.resource.ClusterScoped && namespace != "":
		errs = append(errs, field.Forbidden(path.Child("namespace"), "the resource has no namespaces"))
	case !r.resource.ClusterScoped && namespace == "":
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	if len(errs) > 0 {
		return errs
	}
	return rest.ValidateCreate(ctx, obj, r.CreateStrategy)
}

// Discard removes all stored objects, regardless of their finalizers, and returns their number.
func (r *REST) Discard(ctx context.Context, dryRun bool) (int64, error) {
	list, err := r.List(r.Context(ctx, "list", metav1.NamespaceAll), &metainternalversion.ListOptions{})
	if err != nil {
		return 0, err
	}
	var discarded atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(discardWorkers)
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		key, err := r.KeyFunc(r.Context(ctx, "delete", accessor.GetNamespace()), accessor.GetName())
		if err != nil {
			return err
		}
		group.Go(func() error {
			err := r.Storage.Delete(ctx, key, r.New(), nil, rest.ValidateAllObjectFunc, dryRun, nil, storage.DeleteOptions{})
			if storage.IsNotFound(err) {
				return nil
			}
			discarded.Add(1)
			return err
		})
		return nil
	})
	err = errors.Join(err, group.Wait())
	return discarded.Load(), err
}
