package clusterpermission

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// deliveryTimeout bounds how long a request waits for the ManifestWork to be
// written. The ClusterPermission is stored by then; the repair loop takes over.
const deliveryTimeout = 5 * time.Second

// Delivery carries ClusterPermissions to managed clusters.
type Delivery interface {
	// CheckCluster tells why nothing can be delivered to the namespace of a new
	// ClusterPermission, such as no managed cluster of that name; nil if it can.
	CheckCluster(ctx context.Context, namespace string) (*field.Error, error)
	// CheckRender tells what of a ClusterPermission cannot be rendered.
	CheckRender(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (field.ErrorList, error)
	// Deliver writes the ManifestWork of a stored ClusterPermission.
	Deliver(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) error
}

// REST serves ClusterPermissions. The checks are chained onto admission, where
// the object is complete and the caller known; the ManifestWork is written once
// the object is stored.
type REST struct {
	*definition.REST
	delivery Delivery
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := r.REST.Create(ctx, obj, r.admitCreate(admit), options)
	if err == nil && !dryrun.IsDryRun(options.DryRun) {
		r.deliver(ctx, created)
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
			// An unchanged spec that could not be rendered today must not keep
			// labels, annotations or finalizers from being changed.
			changed = !equality.Semantic.DeepEqual(obj.(*rbac.ClusterPermission).Spec, old.(*rbac.ClusterPermission).Spec)
			if !changed || r.checkRender(ctx, old) != nil {
				// What could not be rendered before is reported in a condition;
				// validation has judged what this update adds to it.
				return nil
			}
			return r.checkRender(ctx, obj)
		}, forceAllowCreate, options)
	if err == nil && (created || changed) && !dryrun.IsDryRun(options.DryRun) {
		r.deliver(ctx, updated)
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
		refused, err := r.delivery.CheckCluster(ctx, permission.Namespace)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("looking up the managed cluster of namespace %q: %w", permission.Namespace, err))
		}
		if refused != nil {
			return apierrors.NewInvalid(rbac.SchemeGroupVersion.WithKind("ClusterPermission").GroupKind(), permission.Name, field.ErrorList{refused})
		}
		return r.checkRender(ctx, obj)
	}
}

func (r *REST) checkRender(ctx context.Context, obj runtime.Object) error {
	permission, err := versioned(obj)
	if err != nil {
		return err
	}
	refused, err := r.delivery.CheckRender(ctx, permission)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("rendering ClusterPermission %s/%s: %w", permission.Namespace, permission.Name, err))
	}
	if len(refused) > 0 {
		return apierrors.NewInvalid(rbac.SchemeGroupVersion.WithKind("ClusterPermission").GroupKind(), permission.Name, refused)
	}
	return nil
}

// deliver writes the ManifestWork. The object is stored and acknowledged by now,
// so a failure is not the caller's: the repair loop tries again and reports it
// in the object's conditions.
func (r *REST) deliver(ctx context.Context, obj runtime.Object) {
	permission, err := versioned(obj)
	if err != nil {
		klog.FromContext(ctx).Error(err, "ClusterPermission left to the repair loop")
		return
	}
	if permission.DeletionTimestamp != nil {
		return
	}
	// A caller that goes away must not stop the delivery of what it has stored.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliveryTimeout)
	defer cancel()
	if err := r.delivery.Deliver(ctx, permission); err != nil {
		klog.FromContext(ctx).Error(err, "ClusterPermission left to the repair loop", "clusterPermission", klog.KObj(permission))
	}
}

func versioned(obj runtime.Object) (*rbacv1alpha1.ClusterPermission, error) {
	out := &rbacv1alpha1.ClusterPermission{}
	if err := scheme.Scheme.Convert(obj, out, nil); err != nil {
		return nil, fmt.Errorf("converting a ClusterPermission: %w", err)
	}
	return out, nil
}
