package worksync

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
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// Controller repairs what the requests could not finish, restores works that
// someone else changed or removed, and is the only writer of the status of
// ClusterPermissions. One of it acts on a hub at a time.
type Controller struct {
	deliverer       *Deliverer
	permissions     rbaclisters.ClusterPermissionLister
	permissionIndex cache.Indexer
	works           worklisters.ManifestWorkLister
	workIndex       cache.Indexer
	clusters        clusterlisters.ManagedClusterLister
	loop            reconcile.Loop
}

// namespaceDelay gathers changes of namespaces, many of which may come at once
// and concern the same ClusterPermissions.
const namespaceDelay = 200 * time.Millisecond

// Informers feed a Controller; the caller starts them.
type Informers struct {
	Permissions rbacinformers.ClusterPermissionInformer
	Works       workinformers.ManifestWorkInformer
	Clusters    clusterinformers.ManagedClusterInformer
	Accounts    authenticationinformers.ManagedServiceAccountInformer
	// NoAccounts says that the hub may not have any: the Controller does not wait for them.
	NoAccounts bool
	// Addons are the ManagedClusterAddOns of the public agent for accounts, which the hub may not have.
	Addons cache.SharedIndexInformer
	// Roles and ClusterRoles are those of the hub.
	Roles        kuberbacinformers.RoleInformer
	ClusterRoles kuberbacinformers.ClusterRoleInformer
}

// NewController returns a controller that is fed by the given informers.
func NewController(deliverer *Deliverer, from Informers) (*Controller, error) {
	c := &Controller{
		deliverer:       deliverer,
		permissions:     from.Permissions.Lister(),
		permissionIndex: from.Permissions.Informer().GetIndexer(),
		works:           from.Works.Lister(),
		workIndex:       from.Works.Informer().GetIndexer(),
		clusters:        from.Clusters.Lister(),
	}
	// What not every ClusterPermission depends on must not keep the others waiting,
	// should the hub refuse to say it: what is not in a cache is asked for.
	c.loop = reconcile.Loop{
		Name:      "clusterpermission",
		Reconcile: c.reconcile,
		Urgent:    c.removed,
		Feeds: []reconcile.Feed{
			{Informer: from.Permissions.Informer(), Keys: reconcile.Own},
			{Informer: from.Works.Informer(), Keys: ownerKeys},
			{Informer: from.Clusters.Informer(), Keys: c.clusterKeys, Ignore: sameCluster},
			{Informer: from.Accounts.Informer(), Keys: c.accountKeys, Ignore: sameServiceAccount, MaybeAbsent: from.NoAccounts},
			{Informer: from.Addons, Keys: c.addonKeys, MaybeAbsent: true, OnceKnown: c.withAccounts},
			{Informer: from.Roles.Informer(), Keys: c.roleKeys, Ignore: sameRules, MaybeAbsent: true},
			{Informer: from.ClusterRoles.Informer(), Keys: c.roleKeys, Ignore: sameRules, MaybeAbsent: true},
			{Informer: deliverer.Sources.Namespaces.informer(), Keys: c.namespaceKeys, Ignore: sameNamespace, Delay: namespaceDelay, MaybeAbsent: true},
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

// Run repairs until ctx ends, and returns once every worker has stopped. It may
// run again afterwards, but not twice at once.
func (c *Controller) Run(ctx context.Context) { c.loop.Run(ctx) }

func controllingPermission(work *workv1.ManifestWork) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(work)
	if owner == nil || owner.Kind != "ClusterPermission" || owner.APIVersion != rbacv1alpha1.SchemeGroupVersion.String() {
		return nil
	}
	return owner
}

func (c *Controller) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	permission, err := c.permissions.ClusterPermissions(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		permission = nil
	} else if err != nil {
		return 0, err
	}
	if err := c.removeOrphans(ctx, name, permission); err != nil {
		return 0, err
	}
	if permission == nil || permission.DeletionTimestamp != nil {
		return 0, nil
	}

	seen := observation{}
	switch cluster, err := c.clusters.Get(permission.Namespace); {
	case err == nil:
		// The registration of a deleted cluster deletes its works.
		seen.clusterExists = cluster.DeletionTimestamp == nil
	case !apierrors.IsNotFound(err):
		return 0, err
	}
	known, err := c.works.ManifestWorks(permission.Namespace).Get(render.WorkName(permission))
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if apierrors.IsNotFound(err) {
		known = nil
	}

	if seen.clusterExists {
		started := time.Now()
		seen.result, seen.work, seen.err = c.deliverer.sync(ctx, permission, known)
		if seen.work != known || seen.err != nil {
			observeDelivery(sourceRepair, started, seen.err)
		}
	} else {
		// The namespace may belong to a cluster that is gone; what was delivered
		// stays until the ClusterPermission is deleted.
		seen.result, seen.err = c.deliverer.render(ctx, permission)
		seen.work = known
	}
	if errors.Is(seen.err, errNamespacesUnknown) {
		return 0, seen.err // says nothing of the ClusterPermission
	}
	if err := c.report(ctx, permission, seen); err != nil {
		return 0, err
	}
	var unrenderable *unrenderableError
	if errors.As(seen.err, &unrenderable) {
		return 0, nil // only a change of it or of what it depends on can help, and that brings an event
	}
	return 0, seen.err
}

// removed reports whether a ClusterPermission is deleted, so that what it granted is
// revoked before others are rendered.
func (c *Controller) removed(name cache.ObjectName) bool {
	permission, err := c.permissions.ClusterPermissions(name.Namespace).Get(name.Name)
	return apierrors.IsNotFound(err) || err == nil && permission.DeletionTimestamp != nil
}

// removeOrphans deletes works whose ClusterPermission is gone. The hub's garbage
// collector does the same where it runs; here it happens at once and everywhere.
func (c *Controller) removeOrphans(ctx context.Context, name cache.ObjectName, permission *rbacv1alpha1.ClusterPermission) error {
	works, err := c.workIndex.ByIndex(byOwner, name.String())
	if err != nil {
		return err
	}
	for _, obj := range works {
		work := obj.(*workv1.ManifestWork)
		owner := controllingPermission(work)
		if work.DeletionTimestamp != nil || permission != nil && owner.UID == permission.UID {
			continue
		}
		// The cache may lag behind a ClusterPermission that was just created.
		current, err := c.deliverer.Permissions.ClusterPermissions(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil && current.UID == owner.UID {
			continue
		}
		if err := c.deliverer.delete(ctx, work); err != nil {
			return fmt.Errorf("removing ManifestWork %s/%s, whose ClusterPermission is gone: %w", work.Namespace, work.Name, err)
		}
	}
	return nil
}

// report writes the status if it is not what it should be.
func (c *Controller) report(ctx context.Context, permission *rbacv1alpha1.ClusterPermission, seen observation) error {
	status := judge(permission, seen)
	if equality.Semantic.DeepEqual(status, permission.Status) {
		return nil
	}
	update := permission.DeepCopy()
	update.Status = status
	_, err := c.deliverer.Permissions.ClusterPermissions(permission.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		// The cache lags; the event that brings it up to date runs this again.
		return nil
	}
	return err
}
