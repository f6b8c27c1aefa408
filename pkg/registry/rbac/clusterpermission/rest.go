package clusterpermission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

var kind = rbacv1alpha1.SchemeGroupVersion.WithKind("ClusterPermission").GroupKind()

// REST serves ClusterPermissions. After admission, when the object is complete, a write is rendered and authorized. After it
// is stored, its ManifestWork is written.
type REST struct {
	*definition.REST
	delivery delivery
	grants   *grants
}

// write is a write of a ClusterPermission.
type write struct {
	*REST
	// changed is true if the write changes the spec, and work its rendering if it is new.
	changed bool
	work    *workv1.ManifestWork
	// decision is that of prepare about a changed spec.
	decision *decision
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	w := &write{REST: r}
	ctx = context.WithValue(ctx, writeKey{}, w)
	created, err := r.REST.Create(ctx, obj, definition.Guard[*rbac.ClusterPermission](w.check).AdmitCreate(admit), options)
	w.deliver(ctx, created, err, options.DryRun)
	return created, err
}

// Update implements rest.Updater. It also serves patches and server-side apply.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, admitCreate rest.ValidateObjectFunc, admitUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	w := &write{REST: r}
	ctx = context.WithValue(ctx, writeKey{}, w)
	guard := definition.Guard[*rbac.ClusterPermission](w.check)
	updated, created, err := r.REST.Update(ctx, name, objInfo, guard.AdmitCreate(admitCreate), guard.AdmitUpdate(admitUpdate), forceAllowCreate, options)
	w.deliver(ctx, updated, err, options.DryRun)
	return updated, created, err
}

// Delete implements rest.GracefulDeleter. It warns callers if the server creates the object again.
func (r *REST) Delete(ctx context.Context, name string, admit rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	warn := definition.Guard[*rbac.ClusterPermission](func(ctx context.Context, c, _ *rbac.ClusterPermission) error {
		if namespace := c.Labels[rbacv1beta1.NamespaceLabel]; namespace != "" && !definition.ByServer(ctx) {
			warning.AddWarning(ctx, "", fmt.Sprintf("MulticlusterRoleAssignment %s/%s creates the ClusterPermission again; delete or change that", namespace, c.Annotations[rbacv1beta1.NameAnnotation]))
		}
		return nil
	})
	return r.REST.Delete(ctx, name, warn.AdmitCreate(admit), options)
}

// check renders and authorizes a valid object. old is nil for a new one.
func (w *write) check(ctx context.Context, obj, old *rbac.ClusterPermission) error {
	// Labels, annotations and finalizers can be changed even if the unchanged spec could not be rendered or granted now.
	if w.changed = old == nil || !equality.Semantic.DeepEqual(obj.Spec, old.Spec); !w.changed {
		return nil
	}
	work, err := w.delivery.check(ctx, obj, old)
	if err != nil {
		return err
	}
	if w.work = nil; old == nil && !isPending(obj) {
		w.work = work
	}
	return w.grants.admit(ctx, obj, old, w.decision)
}

// deliver writes the ManifestWork of what was stored.
func (w *write) deliver(ctx context.Context, stored runtime.Object, err error, dryRun []string) {
	if err == nil && w.changed && !dryrun.IsDryRun(dryRun) {
		w.delivery.deliver(ctx, stored, w.work)
	}
}
