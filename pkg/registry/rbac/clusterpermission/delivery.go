package clusterpermission

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
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
	// Work returns what a ClusterPermission renders to, nil if nothing of it can be
	// delivered, or what of it cannot be rendered.
	Work(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (*workv1.ManifestWork, field.ErrorList, error)
	// Deliver writes the ManifestWork of a stored ClusterPermission.
	Deliver(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) error
	// Delivered returns the manifests of a namespace's ClusterPermissions that are
	// applied on the managed cluster.
	Delivered(ctx context.Context, namespace string) ([]workv1.Manifest, error)
}

// delivering is a Delivery in the terms of the registry.
type delivering struct {
	Delivery
}

// check refuses a spec that cannot be delivered. old is nil for a new object.
func (d delivering) check(ctx context.Context, obj, old *rbac.ClusterPermission) error {
	if old == nil {
		refused, err := d.CheckCluster(ctx, obj.Namespace)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("looking up the managed cluster of namespace %q: %w", obj.Namespace, err))
		}
		if refused != nil {
			return apierrors.NewInvalid(kind, obj.Name, field.ErrorList{refused})
		}
	}
	err := d.checkRender(ctx, obj)
	if err != nil && old != nil && d.checkRender(ctx, old) != nil {
		// What could not be rendered before is reported in a condition; validation has
		// judged what an update adds to it.
		return nil
	}
	return err
}

func (d delivering) checkRender(ctx context.Context, obj *rbac.ClusterPermission) error {
	permission, err := versioned(obj)
	if err != nil {
		return err
	}
	permission.Status.Approval = nil // what waits for approval can be rendered as well
	refused, err := d.CheckRender(ctx, permission)
	if err != nil {
		return cannotRender(obj, err)
	}
	if len(refused) > 0 {
		return apierrors.NewInvalid(kind, obj.Name, refused)
	}
	return nil
}

// work is what obj renders to.
func (d delivering) work(ctx context.Context, obj *rbac.ClusterPermission) (*workv1.ManifestWork, error) {
	permission, err := versioned(obj)
	if err != nil {
		return nil, err
	}
	work, refused, err := d.Work(ctx, permission)
	switch {
	case err != nil:
		return nil, cannotRender(obj, err)
	case len(refused) > 0:
		return nil, apierrors.NewInvalid(kind, obj.Name, refused)
	case work == nil:
		return nil, nothingToDeliver(obj)
	}
	return work, nil
}

// nothingToDeliver is the answer where there is no work to show.
func nothingToDeliver(obj *rbac.ClusterPermission) error {
	message := fmt.Sprintf("nothing of ClusterPermission %q can be delivered; its condition FullyDelivered says why", obj.Name)
	if waits(obj) {
		message = fmt.Sprintf("nothing of ClusterPermission %q is delivered before generation %d is approved; post it here to see what it would render to", obj.Name, obj.Generation)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: message,
	}}
}

func cannotRender(obj *rbac.ClusterPermission, err error) error {
	return apierrors.NewInternalError(fmt.Errorf("rendering ClusterPermission %s/%s: %w", obj.Namespace, obj.Name, err))
}

// deliver writes the ManifestWork. The object is stored and acknowledged by now,
// so a failure is not the caller's: the repair loop tries again and reports it
// in the object's conditions.
func (d delivering) deliver(ctx context.Context, obj runtime.Object) {
	permission, err := versioned(obj.(*rbac.ClusterPermission))
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
	if err := d.Deliver(ctx, permission); err != nil {
		klog.FromContext(ctx).Error(err, "ClusterPermission left to the repair loop", "clusterPermission", klog.KObj(permission))
	}
}
