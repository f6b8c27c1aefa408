package definition

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Guard refuses writes of a resource whose internal type is T for reasons outside of the
// object, such as the permissions of the caller. It runs after validation and admission. It
// does not apply to writes of the status or to deletion. old is nil for a new object.
type Guard[T runtime.Object] func(ctx context.Context, obj, old T) error

// Wrap is a Wrap of a Resource. It adds the guard to a store.
func (g Guard[T]) Wrap(store *REST) rest.Storage {
	return &guardedREST[T]{REST: store, guard: g}
}

type guardedREST[T runtime.Object] struct {
	*REST
	guard Guard[T]
}

// Create implements rest.Creater.
func (r *guardedREST[T]) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return r.REST.Create(ctx, obj, r.guard.AdmitCreate(admit), options)
}

// Update implements rest.Updater. It also serves patches and server-side apply, which may
// create objects.
func (r *guardedREST[T]) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.REST.Update(ctx, name, objInfo, r.guard.AdmitCreate(admitCreate), r.guard.AdmitUpdate(admitUpdate), forceAllowCreate, options)
}

// AdmitCreate returns a function that runs the admission of new objects, and then the guard.
func (g Guard[T]) AdmitCreate(admit rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if err := admit(ctx, obj); err != nil {
			return err
		}
		var none T
		return g(ctx, obj.(T), none)
	}
}

// AdmitUpdate returns a function that runs the admission of changed objects, and then the guard.
func (g Guard[T]) AdmitUpdate(admit rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		if err := admit(ctx, obj, old); err != nil {
			return err
		}
		return g(ctx, obj.(T), old.(T))
	}
}
