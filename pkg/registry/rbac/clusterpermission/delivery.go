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
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// deliveryTimeout limits the time that a request waits for the write of the ManifestWork. If it is
// exceeded, the controller writes the ManifestWork later.
const deliveryTimeout = 5 * time.Second

// Delivery delivers ClusterPermissions to managed clusters by ManifestWorks.
type Delivery interface {
	// CheckCluster reports whether the namespace belongs to a managed cluster. It returns an error of
	// metadata.namespace if it does not and a ClusterPermission may not wait for the cluster.
	CheckCluster(ctx context.Context, namespace string) (exists bool, invalid *field.Error, err error)
	// CheckRender returns the errors of a ClusterPermission that cannot be rendered.
	CheckRender(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (field.ErrorList, error)
	// Work renders a ClusterPermission. It returns nil if no part of it can be delivered, and
	// errors if it cannot be rendered.
	Work(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (*workv1.ManifestWork, field.ErrorList, error)
	// Deliver writes the ManifestWork of a stored ClusterPermission.
	Deliver(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) error
	// Delivered returns the manifests of the ClusterPermissions of a namespace that are applied on
	// the managed cluster.
	Delivered(ctx context.Context, namespace string) ([]workv1.Manifest, error)
}

// delivery is a Delivery of internal types.
type delivery struct {
	Delivery
}

// check refuses a spec that cannot be delivered. old is nil for a new object.
func (d delivery) check(ctx context.Context, obj, old *rbac.ClusterPermission) error {
	if old == nil {
		exists, invalid, err := d.CheckCluster(ctx, obj.Namespace)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("looking up the managed cluster of namespace %q: %w", obj.Namespace, err))
		}
		if invalid != nil {
			return apierrors.NewInvalid(kind, obj.Name, field.ErrorList{invalid})
		}
		if !exists {
			warning.AddWarning(ctx, "", fmt.Sprintf("there is no ManagedCluster %q yet; the ClusterPermission is delivered when the cluster joins", obj.Namespace))
		}
	}
	err := d.checkRender(ctx, obj)
	if err != nil && old != nil && d.checkRender(ctx, old) != nil {
		// A condition already reports that the stored object cannot be rendered. Validation has
		// checked the change.
		return nil
	}
	return err
}

func (d delivery) checkRender(ctx context.Context, obj *rbac.ClusterPermission) error {
	permission, err := versioned(obj)
	if err != nil {
		return err
	}
	permission.Status.Approval = nil // render the pending spec
	errs, err := d.CheckRender(ctx, permission)
	if err != nil {
		return renderError(obj, err)
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(kind, obj.Name, errs)
	}
	return nil
}

// work renders a ClusterPermission.
func (d delivery) work(ctx context.Context, obj *rbac.ClusterPermission) (*workv1.ManifestWork, error) {
	permission, err := versioned(obj)
	if err != nil {
		return nil, err
	}
	work, errs, err := d.Work(ctx, permission)
	switch {
	case err != nil:
		return nil, renderError(obj, err)
	case len(errs) > 0:
		return nil, apierrors.NewInvalid(kind, obj.Name, errs)
	case work == nil:
		return nil, nothingToDeliver(obj)
	}
	return work, nil
}

// nothingToDeliver returns the error of a ClusterPermission without a ManifestWork.
func nothingToDeliver(obj *rbac.ClusterPermission) error {
	message := fmt.Sprintf("no part of ClusterPermission %q can be delivered; see its condition FullyDelivered", obj.Name)
	if isPending(obj) {
		message = fmt.Sprintf("ClusterPermission %q is not delivered because generation %d waits for approval; to preview the ManifestWork, POST the ClusterPermission to this URL", obj.Name, obj.Generation)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: message,
	}}
}

func renderError(obj *rbac.ClusterPermission, err error) error {
	return apierrors.NewInternalError(fmt.Errorf("rendering ClusterPermission %s/%s: %w", obj.Namespace, obj.Name, err))
}

// deliver writes the ManifestWork of a stored object. An error does not fail the request: the
// controller tries again, and reports the error in the conditions.
func (d delivery) deliver(ctx context.Context, obj runtime.Object) {
	permission, err := versioned(obj.(*rbac.ClusterPermission))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to deliver ClusterPermission; the controller tries again")
		return
	}
	if permission.DeletionTimestamp != nil {
		return
	}
	// The delivery must not stop if the client disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliveryTimeout)
	defer cancel()
	if err := d.Deliver(ctx, permission); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to deliver ClusterPermission; the controller tries again", "clusterPermission", klog.KObj(permission))
	}
}
