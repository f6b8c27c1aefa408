package worksync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	rbacinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/rbac/v1alpha1"
	workinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/work/v1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

const (
	workers          = 8
	reconcileTimeout = 30 * time.Second
	firstRetry       = 100 * time.Millisecond
	lastRetry        = time.Minute

	// byOwner indexes works by namespace/name of the ClusterPermission that controls them.
	byOwner = "byClusterPermission"
)

// Controller repairs what the requests could not finish, restores works that
// someone else changed or removed, and is the only writer of the status of
// ClusterPermissions. One of it acts on a hub at a time.
type Controller struct {
	deliverer   *Deliverer
	permissions rbaclisters.ClusterPermissionLister
	works       worklisters.ManifestWorkLister
	workIndex   cache.Indexer
	clusters    clusterlisters.ManagedClusterLister
	feeds       []feed

	// queue belongs to the run that is under way.
	queue workqueue.TypedRateLimitingInterface[string]
}

// feed says what a change of an object queues.
type feed struct {
	informer cache.SharedIndexInformer
	keys     func(obj any) []string
}

// NewController returns a controller that is fed by the given informers, which
// the caller starts.
func NewController(deliverer *Deliverer, permissions rbacinformers.ClusterPermissionInformer, works workinformers.ManifestWorkInformer, clusters clusterinformers.ManagedClusterInformer) (*Controller, error) {
	c := &Controller{
		deliverer:   deliverer,
		permissions: permissions.Lister(),
		works:       works.Lister(),
		workIndex:   works.Informer().GetIndexer(),
		clusters:    clusters.Lister(),
	}
	c.feeds = []feed{
		{permissions.Informer(), permissionKeys},
		{works.Informer(), ownerKeys},
		{clusters.Informer(), c.clusterKeys},
	}
	if err := works.Informer().AddIndexers(cache.Indexers{byOwner: func(obj any) ([]string, error) {
		return ownerKeys(obj), nil
	}}); err != nil {
		return nil, fmt.Errorf("indexing ManifestWorks: %w", err)
	}
	return c, nil
}

// Run repairs until ctx ends, and returns once every worker has stopped. It may
// run again afterwards, but not twice at once.
func (c *Controller) Run(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	defer utilruntime.HandleCrashWithContext(ctx)
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "clusterpermission"})
	var running sync.WaitGroup
	defer running.Wait()
	defer c.queue.ShutDown()

	var synced []cache.InformerSynced
	for _, feed := range c.feeds {
		// Adding the handler replays every object, so that each is looked at
		// once by whoever has just become the one that acts.
		registration, err := feed.informer.AddEventHandler(handler(c.queue, feed.keys))
		if err != nil {
			utilruntime.HandleErrorWithContext(ctx, err, "watching for changes")
			return
		}
		defer func() {
			if err := feed.informer.RemoveEventHandler(registration); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "no longer watching for changes")
			}
		}()
		synced = append(synced, registration.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	for range workers {
		running.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				for c.next(ctx) {
				}
			}, time.Second)
		})
	}
	<-ctx.Done()
}

// handler queues what a change calls for. It holds the queue of its own run, as
// notifications may still arrive while the next run begins.
func handler(queue workqueue.TypedRateLimitingInterface[string], keys func(obj any) []string) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		for _, key := range keys(obj) {
			queue.Add(key)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			enqueue(obj)
		},
	}
}

func permissionKeys(obj any) []string {
	if permission, ok := obj.(*rbacv1alpha1.ClusterPermission); ok {
		return []string{cache.MetaObjectToName(permission).String()}
	}
	return nil
}

func ownerKeys(obj any) []string {
	if key, ok := ownerKey(obj); ok {
		return []string{key}
	}
	return nil
}

func (c *Controller) clusterKeys(obj any) []string {
	cluster, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	permissions, err := c.permissions.ClusterPermissions(cluster.GetName()).List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(err)
		return nil
	}
	var keys []string
	for _, permission := range permissions {
		keys = append(keys, permissionKeys(permission)...)
	}
	return keys
}

// ownerKey is namespace/name of the ClusterPermission that controls a work.
func ownerKey(obj any) (string, bool) {
	work, ok := obj.(*workv1.ManifestWork)
	if !ok {
		return "", false
	}
	owner := controllingPermission(work)
	if owner == nil {
		return "", false
	}
	return cache.NewObjectName(work.Namespace, owner.Name).String(), true
}

func controllingPermission(work *workv1.ManifestWork) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(work)
	if owner == nil || owner.Kind != "ClusterPermission" || owner.APIVersion != rbacv1alpha1.SchemeGroupVersion.String() {
		return nil
	}
	return owner
}

func (c *Controller) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)

	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	if err := c.reconcile(ctx, key); err != nil {
		klog.FromContext(ctx).Error(err, "ClusterPermission is tried again", "clusterPermission", key, "tries", c.queue.NumRequeues(key)+1)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

func (c *Controller) reconcile(ctx context.Context, key string) error {
	name, err := cache.ParseObjectName(key)
	if err != nil {
		return nil // not one of ours, and trying again will not make it so
	}
	permission, err := c.permissions.ClusterPermissions(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		permission = nil
	} else if err != nil {
		return err
	}
	if err := c.removeOrphans(ctx, name, permission); err != nil {
		return err
	}
	if permission == nil || permission.DeletionTimestamp != nil {
		return nil
	}

	seen := observation{}
	switch _, err := c.clusters.Get(permission.Namespace); {
	case err == nil:
		seen.clusterExists = true
	case !apierrors.IsNotFound(err):
		return err
	}
	known, err := c.works.ManifestWorks(permission.Namespace).Get(render.WorkName(permission))
	if err != nil && !apierrors.IsNotFound(err) {
		return err
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
		result, errs := c.deliverer.render(permission)
		seen.result, seen.work = result, known
		if len(errs) > 0 {
			seen.err = &unrenderableError{errs}
		}
	}
	if err := c.report(ctx, permission, seen); err != nil {
		return err
	}
	var unrenderable *unrenderableError
	if errors.As(seen.err, &unrenderable) {
		return nil // only a change of the object can help, and that brings an event
	}
	return seen.err
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
