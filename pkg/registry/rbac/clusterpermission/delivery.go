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
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// deliveryTimeout limits the time that a request waits for the write of the ManifestWork. If it is
// exceeded, the controller writes the ManifestWork later.
const deliveryTimeout = 5 * time.Second

// Delivery delivers ClusterPermissions to managed clusters by ManifestWorks.
type Delivery interface {
	// CheckCluster reports whether the namespace belongs to a managed cluster. It returns an error of
	// metadata.namespace if it does not and a ClusterPermission may not wait for the cluster.
	CheckCluster(ctx context.Context, namespace string) (exists bool, invalid *field.Error, err error)
	// Render renders the delivered spec of a ClusterPermission, or returns the errors of one that cannot be rendered. storing
	// is true before the ClusterPermission is stored.
	Render(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, storing bool) (*render.Result, field.ErrorList, error)
	// Deliver writes the ManifestWork of a stored ClusterPermission. work is the rendering of a new one, or nil.
	Deliver(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, work *workv1.ManifestWork) error
	// Delivered returns the manifests of the ClusterPermissions of a namespace that are applied on
	// the managed cluster.
	Delivered(ctx context.Context, namespace string) ([]workv1.Manifest, error)
}

// delivery is a Delivery of internal types.
type delivery struct {
	Delivery
}

// check refuses a spec that cannot be delivered, and returns its rendering. old is nil for a new object.
func (d delivery) check(ctx context.Context, obj, old *rbac.ClusterPermission) (*workv1.ManifestWork, error) {
	if old == nil {
		if err := d.checkCluster(ctx, obj); err != nil {
			return nil, err
		}
	}
	work, err := d.work(ctx, obj, true)
	if err != nil && old != nil {
		// A condition already reports that the stored object cannot be rendered. Validation has checked the change. An
		// object that is only too large with its largest accounts must not become one that cannot be rendered at all.
		_, now := d.work(ctx, obj, false)
		if _, before := d.work(ctx, old, now == nil); before != nil {
			return nil, nil
		}
	}
	return work, err
}

func (d delivery) checkCluster(ctx context.Context, obj *rbac.ClusterPermission) error {
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
	return nil
}

// work returns the ManifestWork of a ClusterPermission, or nil if no part of it can be delivered. Before the ClusterPermission
// is stored, it is that of the current spec, which may wait for approval.
func (d delivery) work(ctx context.Context, obj *rbac.ClusterPermission, storing bool) (*workv1.ManifestWork, error) {
	permission := versioned(obj)
	if storing {
		permission.Status.Approval = nil
	}
	result, errs, err := d.Render(ctx, permission, storing)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("rendering ClusterPermission %s/%s: %w", obj.Namespace, obj.Name, err))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(kind, obj.Name, errs)
	}
	return result.Work, nil
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

// deliver writes the ManifestWork of a stored object, whose rendering is work, or nil. An error does not fail the request: the
// controller tries again, and reports the error in the conditions.
func (d delivery) deliver(ctx context.Context, obj runtime.Object, work *workv1.ManifestWork) {
	permission := versioned(obj.(*rbac.ClusterPermission))
	if permission.DeletionTimestamp != nil {
		return
	}
	// The delivery must not stop if the client disconnects.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliveryTimeout)
	defer cancel()
	if err := d.Deliver(limited, permission, work); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to deliver ClusterPermission; the controller tries again", "clusterPermission", klog.KObj(permission))
	}
}
