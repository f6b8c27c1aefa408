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

// REST serves ClusterPermissions. Its checks run after admission, when the object is complete. It
// writes the ManifestWork after the object is stored.
type REST struct {
	*definition.REST
	delivery delivery
	grants   *grants
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := r.REST.Create(ctx, obj, r.guard(nil).AdmitCreate(admit), options)
	if err == nil && !dryrun.IsDryRun(options.DryRun) {
		r.delivery.deliver(ctx, created)
	}
	return created, err
}

// Update implements rest.Updater. It also serves patches and server-side apply.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	changed := false
	guard := r.guard(&changed)
	updated, created, err := r.REST.Update(ctx, name, objInfo, guard.AdmitCreate(admitCreate), guard.AdmitUpdate(admitUpdate), forceAllowCreate, options)
	if err == nil && (created || changed) && !dryrun.IsDryRun(options.DryRun) {
		r.delivery.deliver(ctx, updated)
	}
	return updated, created, err
}

// guard returns the checks of a write. An update sets changed to whether it changes the spec.
func (r *REST) guard(changed *bool) definition.Guard[*rbac.ClusterPermission] {
	check := func(ctx context.Context, obj, old *rbac.ClusterPermission) error {
		if err := r.delivery.check(ctx, obj, old); err != nil {
			return err
		}
		return r.grants.admit(ctx, obj, old)
	}
	return definition.Guard[*rbac.ClusterPermission]{
		Create: func(ctx context.Context, obj *rbac.ClusterPermission) error { return check(ctx, obj, nil) },
		Update: func(ctx context.Context, obj, old *rbac.ClusterPermission) error {
			// Labels, annotations and finalizers can be changed even if the unchanged spec could
			// not be rendered or granted now.
			if *changed = !equality.Semantic.DeepEqual(obj.Spec, old.Spec); !*changed {
				return nil
			}
			return check(ctx, obj, old)
		},
	}
}
