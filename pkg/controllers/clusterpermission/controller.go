// Package clusterpermission contains the controller of ClusterPermissions: it repairs their ManifestWorks, which the request
// has written with package permissions, and reports their status.
package clusterpermission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/tools/cache"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	authenticationinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	rbacinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/rbac/v1alpha1"
	workinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/permissions"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// Controller keeps the ManifestWorks of ClusterPermissions up to date, restores ManifestWorks that
// another client changed or deleted, and is the only writer of the status of ClusterPermissions. It
// runs on one replica at a time.
type Controller struct {
	reconcile.Loop
	Informers
	deliverer *permissions.Deliverer
}

// namespaceDelay batches changes of namespaces: many may come at once and concern the same
// ClusterPermissions.
const namespaceDelay = 200 * time.Millisecond

// Informers are the informers of a Controller. The caller starts them.
type Informers struct {
	Permissions rbacinformers.ClusterPermissionInformer
	Works       workinformers.ManifestWorkInformer
	Clusters    clusterinformers.ManagedClusterInformer
	Accounts    authenticationinformers.ManagedServiceAccountInformer
	// NoAccounts is true if the hub may not serve ManagedServiceAccounts. The Controller does not wait
	// for them.
	NoAccounts bool
	// Addons are the ManagedClusterAddOns of the upstream agent for accounts. The hub may not serve them.
	Addons cache.SharedIndexInformer
	// Roles and ClusterRoles are the roles of the hub.
	Roles        kuberbacinformers.RoleInformer
	ClusterRoles kuberbacinformers.ClusterRoleInformer
}

// NewController returns a Controller.
func NewController(deliverer *permissions.Deliverer, from Informers) (*Controller, error) {
	c := &Controller{Informers: from, deliverer: deliverer}
	// Informers on which only some ClusterPermissions depend are MaybeAbsent: if the hub denies
	// access to them, other ClusterPermissions do not wait. Objects that are not cached are read
	// from the API server.
	c.Loop = reconcile.Loop{
		Name:      "clusterpermission",
		Reconcile: c.reconcile,
		Urgent:    c.removed,
		Feeds: []reconcile.Feed{
			{Informer: from.Permissions.Informer(), Keys: reconcile.Own},
			{Informer: from.Works.Informer(), Keys: reconcile.Keys(ownerKeys)},
			{Informer: from.Clusters.Informer(), Keys: reconcile.Keys(c.clusterKeys), Ignore: reconcile.Always},
			{Informer: from.Accounts.Informer(), Keys: reconcile.Keys(c.accountKeys), Ignore: reconcile.Same(sameAccount), MaybeAbsent: from.NoAccounts},
			{Informer: from.Addons, Keys: reconcile.Keys(c.addonKeys), MaybeAbsent: true, OnceKnown: c.allKeys},
			{Informer: from.Roles.Informer(), Keys: c.roleKeys, MaybeAbsent: true},
			{Informer: from.ClusterRoles.Informer(), Keys: c.roleKeys, MaybeAbsent: true},
			{Informer: deliverer.Sources.Namespaces.Informer, Keys: reconcile.Keys(c.namespaceKeys), Ignore: reconcile.Same(sameNamespace), Delay: namespaceDelay, MaybeAbsent: true},
		},
	}
	if err := from.Permissions.Informer().AddIndexers(permissionIndexers); err != nil {
		return nil, fmt.Errorf("indexing ClusterPermissions: %w", err)
	}
	if err := from.Works.Informer().AddIndexers(workIndexers); err != nil {
		return nil, fmt.Errorf("indexing ManifestWorks: %w", err)
	}
	return c, nil
}

// controllingPermission returns the reference to the ClusterPermission that controls a ManifestWork.
func controllingPermission(work *workv1.ManifestWork) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(work)
	if owner == nil || owner.Kind != "ClusterPermission" || owner.APIVersion != rbacv1alpha1.SchemeGroupVersion.String() {
		return nil
	}
	return owner
}

func (c *Controller) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	permission, err := reconcile.OrNil(c.Permissions.Lister().ClusterPermissions(name.Namespace).Get(name.Name))
	if err != nil {
		return 0, err
	}
	if err := c.removeOrphans(ctx, name, permission); err != nil {
		return 0, err
	}
	if permission == nil || permission.DeletionTimestamp != nil {
		return 0, nil
	}

	cluster, err := reconcile.OrNil(c.Clusters.Lister().Get(permission.Namespace))
	if err != nil {
		return 0, err
	}
	known, err := reconcile.OrNil(c.Works.Lister().ManifestWorks(permission.Namespace).Get(render.WorkName(permission)))
	if err != nil {
		return 0, err
	}
	// The registration deletes the ManifestWorks of a deleted cluster.
	seen := observation{clusterExists: cluster != nil && cluster.DeletionTimestamp == nil}
	// Without a cluster, its ManifestWorks stay until the ClusterPermission is deleted.
	seen.result, seen.work, seen.err = c.deliverer.Sync(ctx, permission, known, seen.clusterExists)
	if errors.Is(seen.err, permissions.ErrNamespacesUnknown) {
		return 0, seen.err // the ClusterPermission is not the cause
	}
	if err := c.updateStatus(ctx, permission, seen); err != nil {
		return 0, err
	}
	var unrenderable *permissions.UnrenderableError
	if errors.As(seen.err, &unrenderable) {
		return 0, nil // every change that can resolve the error triggers an event
	}
	return 0, seen.err
}

// removed reports whether a ClusterPermission is deleted. A revocation has priority over rendering.
func (c *Controller) removed(name cache.ObjectName) bool {
	permission, err := c.Permissions.Lister().ClusterPermissions(name.Namespace).Get(name.Name)
	return apierrors.IsNotFound(err) || err == nil && permission.DeletionTimestamp != nil
}

// removeOrphans deletes ManifestWorks whose ClusterPermission no longer exists. It is faster than the
// garbage collector of the hub, which does not run on every hub.
func (c *Controller) removeOrphans(ctx context.Context, name cache.ObjectName, permission *rbacv1alpha1.ClusterPermission) error {
	for _, work := range reconcile.Indexed[*workv1.ManifestWork](c.Works.Informer().GetIndexer(), byOwner, name.String()) {
		owner := controllingPermission(work)
		if work.DeletionTimestamp != nil || permission != nil && owner.UID == permission.UID {
			continue
		}
		// The cache may not contain a new ClusterPermission yet.
		current, err := reconcile.OrNil(c.deliverer.Permissions.ClusterPermissions(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}))
		if err != nil {
			return err
		}
		if current != nil && current.UID == owner.UID {
			continue
		}
		if err := c.deliverer.Delete(ctx, work); err != nil {
			return fmt.Errorf("deleting ManifestWork %s/%s of a deleted ClusterPermission: %w", work.Namespace, work.Name, err)
		}
	}
	return nil
}

// updateStatus writes the status if it changes.
func (c *Controller) updateStatus(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, seen observation) error {
	status := newStatus(permission, seen)
	if equality.Semantic.DeepEqual(status, permission.Status) {
		return nil
	}
	update := permission.DeepCopy()
	update.Status = status
	_, err := c.deliverer.Permissions.ClusterPermissions(permission.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	return reconcile.IgnoreOutdated(err)
}
