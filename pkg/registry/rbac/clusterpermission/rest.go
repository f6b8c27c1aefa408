package clusterpermission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

var kind = rbac.SchemeGroupVersion.WithKind("ClusterPermission").GroupKind()

// REST serves ClusterPermissions. The checks are chained onto admission, where
// the object is complete and the caller known; the ManifestWork is written once
// the object is stored.
type REST struct {
	*definition.REST
	delivery delivering
	grants   *grants
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := r.REST.Create(ctx, obj, r.admitCreate(admit), options)
	if err == nil && !dryrun.IsDryRun(options.DryRun) {
		r.delivery.deliver(ctx, created)
	}
	return created, err
}

// Update implements rest.Updater; patches and server-side apply end here too.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	changed := false
	updated, created, err := r.REST.Update(ctx, name, objInfo, r.admitCreate(admitCreate),
		func(ctx context.Context, obj, old runtime.Object) error {
			if admitUpdate != nil {
				if err := admitUpdate(ctx, obj, old); err != nil {
					return err
				}
			}
			permission, stored := obj.(*rbac.ClusterPermission), old.(*rbac.ClusterPermission)
			// An unchanged spec that could not be rendered or granted today must not
			// keep labels, annotations or finalizers from being changed.
			if changed = !equality.Semantic.DeepEqual(permission.Spec, stored.Spec); !changed {
				return nil
			}
			if err := r.delivery.check(ctx, permission, stored); err != nil {
				return err
			}
			return r.grants.admit(ctx, permission, stored)
		}, forceAllowCreate, options)
	if err == nil && (created || changed) && !dryrun.IsDryRun(options.DryRun) {
		r.delivery.deliver(ctx, updated)
	}
	return updated, created, err
}

func (r *REST) admitCreate(admit rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if admit != nil {
			if err := admit(ctx, obj); err != nil {
				return err
			}
		}
		permission := obj.(*rbac.ClusterPermission)
		if err := r.delivery.check(ctx, permission, nil); err != nil {
			return err
		}
		return r.grants.admit(ctx, permission, nil)
	}
}
