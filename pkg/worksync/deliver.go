// Package worksync carries ClusterPermissions to managed clusters by way of
// ManifestWorks: once inside the request that stores one, and again, level
// triggered, whenever the work is not what the ClusterPermission renders to.
//
//	request ──► store ClusterPermission ──► Deliver ──► ManifestWork ──► agent
//	                       │                                │    ▲
//	                       └──► informers ──► Controller ◄──┘    │
//	                                              └──────────────┘ repairs, reports status
package worksync

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/retry"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// Deliverer renders ClusterPermissions and writes their ManifestWorks. It is
// safe for concurrent use, also by several replicas: whoever writes last has
// read the ClusterPermission after the work that it replaces.
type Deliverer struct {
	// Permissions reads ClusterPermissions; CachedPermissions knows most of them without asking.
	Permissions       rbacclient.ClusterPermissionsGetter
	CachedPermissions rbaclisters.ClusterPermissionLister
	// Works reads and writes ManifestWorks, wherever the hub keeps them; CachedWorks
	// knows most of them without asking.
	Works       workclient.ManifestWorksGetter
	CachedWorks worklisters.ManifestWorkLister
	// Clusters reads ManagedClusters, wherever the hub keeps them; CachedClusters
	// knows most of them without asking.
	Clusters       clusterclient.ManagedClustersGetter
	CachedClusters clusterlisters.ManagedClusterLister
	// Sources read what the ClusterPermissions depend on.
	Sources *Sources
	// Executor is in whose name the works are applied; nil for the agent's own.
	Executor *workv1.ManifestWorkExecutor
	// SizeLimitBytes bounds the manifests of one work.
	SizeLimitBytes int64
}

// CheckCluster tells why nothing can be delivered to the namespace of a new
// ClusterPermission: seed 001 wants it to be that of a managed cluster.
func (d *Deliverer) CheckCluster(ctx context.Context, namespace string) (*field.Error, error) {
	if _, err := d.CachedClusters.Get(namespace); err == nil {
		return nil, nil
	}
	// One that was created a moment ago may not be in the cache yet.
	_, err := d.Clusters.ManagedClusters().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return field.Invalid(field.NewPath("metadata", "namespace"), namespace,
			"is not the namespace of a managed cluster: there is no ManagedCluster of that name"), nil
	}
	return nil, err
}

// CheckRender tells what of a ClusterPermission cannot be rendered, or could not
// once every account that it names is on the managed cluster.
func (d *Deliverer) CheckRender(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (field.ErrorList, error) {
	in, err := d.inputs(ctx, permission)
	if err != nil {
		return nil, err
	}
	in.Accounts = render.LargestAccounts(permission)
	_, errs := render.Render(permission, in)
	return errs, nil
}

// Work returns the ManifestWork that a ClusterPermission renders to right now,
// without writing anything; nil if nothing of it can be delivered.
func (d *Deliverer) Work(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (*workv1.ManifestWork, field.ErrorList, error) {
	in, err := d.inputs(ctx, permission)
	if err != nil {
		return nil, nil, err
	}
	result, errs := render.Render(permission, in)
	if len(errs) > 0 {
		return nil, errs, nil
	}
	return result.Work, nil, nil
}

// Delivered returns the manifests that the agent of a cluster has applied of the
// cluster's ClusterPermissions as they are now.
func (d *Deliverer) Delivered(ctx context.Context, namespace string) ([]workv1.Manifest, error) {
	permissions, err := d.CachedPermissions.ClusterPermissions(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var out []workv1.Manifest
	for _, permission := range permissions {
		work, err := d.CachedWorks.ManifestWorks(namespace).Get(render.WorkName(permission))
		if err != nil || permission.DeletionTimestamp != nil || !isApplied(work) || !metav1.IsControlledBy(work, permission) {
			continue // a cache knows or does not
		}
		// Somebody else may have written what the work says. What cannot be rendered
		// now, for whatever reason, is nothing that a caller is known to hold.
		in, err := d.Sources.inputs(ctx, permission, false)
		if err != nil {
			continue
		}
		in.Executor = d.Executor
		result, errs := render.Render(permission, in)
		if len(errs) > 0 {
			continue
		}
		if result.Work != nil && upToDate(work, result.Work) {
			out = append(out, work.Spec.Workload.Manifests...)
		}
	}
	return out, nil
}

// Deliver writes the ManifestWork of a stored ClusterPermission. Where the
// ManagedCluster is gone nothing is delivered any more; the Controller reports that.
func (d *Deliverer) Deliver(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) error {
	started := time.Now()
	if gone, err := d.CheckCluster(ctx, permission.Namespace); gone != nil || err != nil {
		return err
	}
	_, _, err := d.sync(ctx, permission, nil)
	observeDelivery(sourceRequest, started, err)
	return err
}

// inputs gathers what a ClusterPermission depends on.
func (d *Deliverer) inputs(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (render.Inputs, error) {
	in, err := d.Sources.inputs(ctx, permission, true)
	in.Executor, in.SizeLimitBytes = d.Executor, d.SizeLimitBytes
	return in, err
}

func (d *Deliverer) render(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (*render.Result, error) {
	in, err := d.inputs(ctx, permission)
	if err != nil {
		return nil, err
	}
	result, errs := render.Render(permission, in)
	if len(errs) > 0 {
		return nil, &unrenderableError{errs}
	}
	return result, nil
}

// sync makes the ManifestWork of a ClusterPermission what it renders to, and
// returns both. known is the work as last seen, or nil.
func (d *Deliverer) sync(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, known *workv1.ManifestWork) (*render.Result, *workv1.ManifestWork, error) {
	result, err := d.render(ctx, permission)
	if err != nil {
		return nil, known, err
	}
	if known == nil && result.Work != nil {
		created, err := d.Works.ManifestWorks(permission.Namespace).Create(ctx, result.Work, metav1.CreateOptions{})
		if err == nil {
			return result, created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return result, nil, err // what the client returns with an error is no work
		}
	}
	if known != nil && metav1.IsControlledBy(known, permission) &&
		(known.DeletionTimestamp != nil || result.Work != nil && upToDate(known, result.Work)) {
		return result, known, nil
	}

	var work *workv1.ManifestWork
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var err error
		result, work, err = d.replace(ctx, permission)
		return err
	})
	return result, work, err
}

// replace reads the work, then the ClusterPermission, and writes the work that
// the latter renders to over exactly the one that was read. Two that do this at
// once cannot leave an older rendering behind: the second to write conflicts.
func (d *Deliverer) replace(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (*render.Result, *workv1.ManifestWork, error) {
	works := d.Works.ManifestWorks(permission.Namespace)
	work, err := works.Get(ctx, render.WorkName(permission), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		work = nil
	} else if err != nil {
		return nil, nil, err
	}

	current, err := d.Permissions.ClusterPermissions(permission.Namespace).Get(ctx, permission.Name, metav1.GetOptions{})
	if err != nil {
		return nil, work, err
	}
	if current.UID != permission.UID || current.DeletionTimestamp != nil {
		return nil, work, fmt.Errorf("ClusterPermission %s/%s was deleted meanwhile", permission.Namespace, permission.Name)
	}
	result, err := d.render(ctx, current)
	if err != nil {
		return nil, work, err
	}

	switch {
	case work == nil && result.Work == nil:
		return result, nil, nil
	case work == nil:
		created, err := works.Create(ctx, result.Work, metav1.CreateOptions{})
		if err != nil {
			return result, nil, err
		}
		return result, created, nil
	case !metav1.IsControlledBy(work, permission):
		return result, nil, fmt.Errorf("ManifestWork %s/%s exists and does not belong to this ClusterPermission", work.Namespace, work.Name)
	case work.DeletionTimestamp != nil:
		return result, work, nil // the event of its end brings the next one
	case result.Work == nil:
		return d.withdraw(ctx, result, work)
	case upToDate(work, result.Work):
		return result, work, nil
	}
	update := work.DeepCopy()
	update.Spec = result.Work.Spec
	for name, value := range result.Work.Annotations {
		metav1.SetMetaDataAnnotation(&update.ObjectMeta, name, value)
	}
	updated, err := works.Update(ctx, update, metav1.UpdateOptions{})
	if err != nil {
		return result, work, err
	}
	return result, updated, nil
}

// withdraw deletes the work of a ClusterPermission of which nothing can be delivered
// any more. It is there until the agent has removed what it has applied.
func (d *Deliverer) withdraw(ctx context.Context, result *render.Result, work *workv1.ManifestWork) (*render.Result, *workv1.ManifestWork, error) {
	if err := d.delete(ctx, work); err != nil {
		return result, work, err
	}
	left, err := d.Works.ManifestWorks(work.Namespace).Get(ctx, work.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && left.UID != work.UID {
		return result, nil, nil
	}
	if err != nil {
		return result, work, err
	}
	return result, left, nil
}

// delete removes exactly the work that was read.
func (d *Deliverer) delete(ctx context.Context, work *workv1.ManifestWork) error {
	err := d.Works.ManifestWorks(work.Namespace).Delete(ctx, work.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &work.UID},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// unrenderableError says what of a stored ClusterPermission cannot be rendered.
type unrenderableError struct {
	errs field.ErrorList
}

func (e *unrenderableError) Error() string { return e.errs.ToAggregate().Error() }

// upToDate tells whether a stored work says what the rendered one says. Manifests
// are compared as JSON values, since storage need not keep the order of keys.
func upToDate(stored, rendered *workv1.ManifestWork) bool {
	a, b := stored.Spec, rendered.Spec
	if len(a.Workload.Manifests) != len(b.Workload.Manifests) {
		return false
	}
	for i := range a.Workload.Manifests {
		if !sameJSON(a.Workload.Manifests[i].Raw, b.Workload.Manifests[i].Raw) {
			return false
		}
	}
	a.Workload, b.Workload = workv1.ManifestsTemplate{}, workv1.ManifestsTemplate{}
	return equality.Semantic.DeepEqual(a, b)
}

func sameJSON(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return equality.Semantic.DeepEqual(x, y)
}
