// Package permissions delivers ClusterPermissions to managed clusters by ManifestWorks. The request that stores a
// ClusterPermission renders it and writes its ManifestWork. The controller of ClusterPermissions writes it again whenever it
// differs from the rendering.
//
//	request ──► Render ──► store ──► Deliver ──► ManifestWork ──► agent
//	                         │                     │    ▲
//	                         └──► controller ◄─────┘    │
//	                                 └──────► Sync ─────┘
package permissions

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/retry"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
)

// Deliverer renders ClusterPermissions and writes their ManifestWorks. It is safe for concurrent use by
// several replicas: a writer reads the ClusterPermission after it reads the ManifestWork that it
// replaces, so a stale rendering cannot overwrite a newer one.
type Deliverer struct {
	// The fields Cached* are caches that may lag behind.
	Permissions       rbacclient.ClusterPermissionsGetter
	CachedPermissions rbaclisters.ClusterPermissionLister
	Works             workclient.ManifestWorksGetter
	CachedWorks       worklisters.ManifestWorkLister
	// Present reports whether a ManagedCluster exists, or why no object may wait for it.
	Present func(ctx context.Context, cluster string) (exists bool, refused string, err error)
	// Sources read the other objects on which ClusterPermissions depend.
	Sources *Sources
	// Executor is the executor of the ManifestWorks. If it is nil, the agent applies them as itself.
	Executor *workv1.ManifestWorkExecutor
	// SizeLimitBytes limits the manifests of one ManifestWork.
	SizeLimitBytes int64

	// requests are the traced requests that store ClusterPermissions.
	requests requests
}

// CheckCluster reports whether a ManagedCluster has the name of the namespace. If there is none and a
// ClusterPermission may not wait for it, it returns an error of metadata.namespace.
func (d *Deliverer) CheckCluster(ctx context.Context, namespace string) (exists bool, invalid *field.Error, err error) {
	exists, refused, err := d.Present(ctx, namespace)
	if refused != "" {
		invalid = field.Invalid(field.NewPath("metadata", "namespace"), namespace, refused)
	}
	return exists, invalid, err
}

// Render reads the objects on which a ClusterPermission depends, and renders the spec that is delivered. It returns the errors
// of one that cannot be rendered. If storing is true, a request is about to store the ClusterPermission: errors that would
// occur only when all its ManagedServiceAccounts exist on the managed cluster are errors now.
func (d *Deliverer) Render(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, storing bool) (result *render.Result, errs field.ErrorList, err error) {
	if storing {
		d.requests.add(ctx, permission.UID)
	}
	ctx, span := tracing.Start(ctx, "Render ClusterPermission", attributes(permission)...)
	defer func() { endRender(span, result, errs, err) }()
	in, err := d.Sources.inputs(ctx, permission, true)
	if err != nil {
		return nil, nil, err
	}
	in.Executor, in.SizeLimitBytes = d.Executor, d.SizeLimitBytes
	result, errs = render.Render(permission, in)
	if in.Accounts = render.LargestAccounts(permission); storing && len(errs) == 0 && len(in.Accounts) > 0 {
		_, errs = render.Render(permission, in)
	}
	return result, errs, nil
}

// render renders a stored ClusterPermission, or returns an UnrenderableError.
func (d *Deliverer) render(ctx context.Context, permission *rbacv1alpha1.ClusterPermission) (*render.Result, error) {
	result, errs, err := d.Render(ctx, permission, false)
	if len(errs) > 0 {
		return nil, &UnrenderableError{Errors: errs}
	}
	return result, err
}

// Delivered returns the manifests of the current ClusterPermissions of a cluster that its agent has
// applied.
func (d *Deliverer) Delivered(ctx context.Context, namespace string) ([]workv1.Manifest, error) {
	permissions, err := d.CachedPermissions.ClusterPermissions(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var out []workv1.Manifest
	for _, permission := range permissions {
		work, err := d.CachedWorks.ManifestWorks(namespace).Get(render.WorkName(permission))
		if err != nil || permission.DeletionTimestamp != nil || !IsApplied(work) || !metav1.IsControlledBy(work, permission) {
			continue // not delivered, or not cached yet
		}
		// Another client may have changed the ManifestWork, so it must equal the rendering. If the
		// rendering fails, the grants are unknown and are omitted.
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

// Deliver writes the ManifestWork of a stored ClusterPermission. work is the rendering of a new one, or nil. If the
// ManagedCluster does not exist, it writes nothing, and the controller delivers the ClusterPermission when the cluster joins.
func (d *Deliverer) Deliver(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, work *workv1.ManifestWork) error {
	started := time.Now()
	if exists, _, err := d.Present(ctx, permission.Namespace); !exists || err != nil {
		return err
	}
	ctx, span := tracing.Start(ctx, "Deliver ClusterPermission", attributes(permission)...)
	_, _, err := d.write(ctx, permission, &render.Result{Work: work})
	tracing.End(span, tracing.Reason(err))
	observeDelivery(sourceRequest, started, err)
	return err
}

// Sync renders a ClusterPermission for the controller and, if repair is true, repairs its ManifestWork. It returns the rendering
// and the ManifestWork. known is the cached ManifestWork, or nil.
func (d *Deliverer) Sync(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, known *workv1.ManifestWork, repair bool) (*render.Result, *workv1.ManifestWork, error) {
	started := time.Now()
	ctx = d.requests.join(ctx, permission.UID)
	result, err := d.render(ctx, permission)
	work := known
	switch {
	case err != nil || !repair:
	case known == nil:
		result, work, err = d.write(ctx, permission, result)
	case !metav1.IsControlledBy(known, permission) || known.DeletionTimestamp == nil && (result.Work == nil || !upToDate(known, result.Work)):
		result, work, err = d.write(ctx, permission, &render.Result{})
	}
	if repair && (work != known || err != nil) {
		observeDelivery(sourceRepair, started, err)
	}
	return result, work, err
}

// write makes the ManifestWork of a ClusterPermission equal to its rendering, and returns both. If rendered contains a
// ManifestWork, it creates that unless one exists.
func (d *Deliverer) write(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, rendered *render.Result) (result *render.Result, work *workv1.ManifestWork, err error) {
	if rendered.Work != nil {
		work, err = d.create(ctx, rendered.Work)
		if err == nil {
			return rendered, work, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return rendered, nil, err
		}
	}
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		result, work, err = d.replace(ctx, permission)
		return err
	})
	return result, work, err
}

// replace reads the ManifestWork, then reads and renders the ClusterPermission, and replaces exactly
// the ManifestWork that it read. Of two concurrent calls, the second write conflicts, so an older
// rendering cannot remain.
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
		return nil, work, fmt.Errorf("ClusterPermission %s/%s was deleted during delivery", permission.Namespace, permission.Name)
	}
	result, err := d.render(ctx, current)
	if err != nil {
		return nil, work, err
	}

	switch {
	case work == nil && result.Work == nil:
		return result, nil, nil
	case work == nil:
		created, err := d.create(ctx, result.Work)
		if err != nil {
			return result, nil, err
		}
		return result, created, nil
	case !metav1.IsControlledBy(work, permission):
		return result, nil, fmt.Errorf("ManifestWork %s/%s exists and is not controlled by this ClusterPermission; delete the ManifestWork", work.Namespace, work.Name)
	case work.DeletionTimestamp != nil:
		return result, work, nil // the event of its deletion triggers the next attempt
	case result.Work == nil:
		// The ManifestWork exists until the agent has removed the applied objects. The event of its deletion follows.
		return result, work, d.Delete(ctx, work)
	case upToDate(work, result.Work):
		return result, work, nil
	}
	update := work.DeepCopy()
	update.Spec = result.Work.Spec
	for name, value := range result.Work.Annotations {
		metav1.SetMetaDataAnnotation(&update.ObjectMeta, name, value)
	}
	// On a hub that stores ManifestWorks in a CustomResourceDefinition, nothing else sets the annotation.
	tracing.Annotate(ctx, &update.ObjectMeta, workv1.TraceparentAnnotation)
	updated, err := works.Update(ctx, update, metav1.UpdateOptions{})
	if err != nil {
		return result, work, err
	}
	return result, updated, nil
}

// create creates the ManifestWork of a rendering.
func (d *Deliverer) create(ctx context.Context, rendered *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	work := *rendered
	work.Annotations = maps.Clone(rendered.Annotations)
	tracing.Annotate(ctx, &work.ObjectMeta, workv1.TraceparentAnnotation)
	return d.Works.ManifestWorks(work.Namespace).Create(ctx, &work, metav1.CreateOptions{})
}

// Delete deletes exactly the ManifestWork that was read.
func (d *Deliverer) Delete(ctx context.Context, work *workv1.ManifestWork) error {
	err := d.Works.ManifestWorks(work.Namespace).Delete(ctx, work.Name, *metav1.NewPreconditionDeleteOptions(string(work.UID)))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// UnrenderableError contains the errors of a stored ClusterPermission that cannot be rendered.
type UnrenderableError struct {
	Errors field.ErrorList
}

func (e *UnrenderableError) Error() string { return e.Errors.ToAggregate().Error() }

// upToDate reports whether a stored ManifestWork equals the rendered one. It compares manifests as
// JSON values, because storage may change the order of keys.
func upToDate(stored, rendered *workv1.ManifestWork) bool {
	a, b := stored.Spec, rendered.Spec
	if len(a.Workload.Manifests) != len(b.Workload.Manifests) {
		return false
	}
	for i := range a.Workload.Manifests {
		if !workv1.SameJSON(a.Workload.Manifests[i].Raw, b.Workload.Manifests[i].Raw) {
			return false
		}
	}
	a.Workload, b.Workload = workv1.ManifestsTemplate{}, workv1.ManifestsTemplate{}
	return equality.Semantic.DeepEqual(a, b)
}
