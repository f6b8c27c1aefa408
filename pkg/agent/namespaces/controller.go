package namespaces

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/feed"
	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	rbacinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/rbac/v1alpha1"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	// workers is how many namespaces are handled at the same time. Thousands of
	// them, at a first start, leave requests to the works and the accounts.
	workers = 4
	// minBackoff and maxBackoff bound how long a failed namespace waits for its next try.
	minBackoff = 200 * time.Millisecond
	maxBackoff = 2 * time.Minute
	// passTimeout bounds one pass.
	passTimeout = 30 * time.Second
	// fullRetry is how long the hub is left alone after its quota has refused a report, and
	// invalidRetry after it has refused a namespace whose labels exceed its limits. Neither is
	// likely to change soon.
	fullRetry    = 2 * time.Minute
	invalidRetry = 30 * time.Minute
)

// Config is what a Controller needs. All fields are required.
type Config struct {
	// ClusterName is the name of the managed cluster, and so the hub namespace
	// of its reports.
	ClusterName string
	// Hub keeps ClusterNamespaces.
	Hub versioned.Interface
	// Managed watches namespaces.
	Managed metadata.Interface
}

// Controller reports the namespaces of one managed cluster.
type Controller struct {
	clusterName string
	hub         rbacclient.ClusterNamespaceInterface
	hubReports  feed.Optional

	reportInformer, namespaceInformer cache.SharedIndexInformer
	reportsSynced, namespacesSynced   cache.InformerSynced
	reports                           rbaclisters.ClusterNamespaceNamespaceLister
	namespaces                        metadatalister.Lister

	queue   workqueue.TypedRateLimitingInterface[string]
	backoff workqueue.TypedRateLimiter[string]
	// watchdog finds the workers that do not return.
	watchdog *fair.Watchdog
	// complaints holds the error that was logged last of each failing namespace.
	complaints sync.Map
	// parked are the namespaces that the quota of the hub has no room for.
	parked parking
}

// New returns a controller. It makes no request.
func New(config Config) (*Controller, error) {
	resource := corev1.SchemeGroupVersion.WithResource("namespaces")
	c := &Controller{
		clusterName: config.ClusterName,
		hub:         config.Hub.RbacV1alpha1().ClusterNamespaces(config.ClusterName),
		hubReports:  feed.Optional{Resource: "ClusterNamespaces"},
		reportInformer: rbacinformers.NewClusterNamespaceInformer(config.Hub, config.ClusterName, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		namespaceInformer: metadatainformer.NewFilteredMetadataInformer(config.Managed, resource,
			metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
	}
	c.watchdog = fair.NewWatchdog("clusternamespace", nil)
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(c.backoff, workqueue.TypedRateLimitingQueueConfig[string]{Name: "clusternamespace"})
	c.reports = rbaclisters.NewClusterNamespaceLister(c.reportInformer.GetIndexer()).ClusterNamespaces(config.ClusterName)
	c.namespaces = metadatalister.New(c.namespaceInformer.GetIndexer(), resource)
	err := errors.Join(
		c.reportInformer.SetTransform(feed.DropManagedFields),
		c.namespaceInformer.SetTransform(dropUnreported),
		c.reportInformer.SetWatchErrorHandlerWithContext(c.hubReports.NotWatched),
	)
	if err != nil {
		return nil, err
	}
	if c.reportsSynced, err = feed.OnChange(c.reportInformer, c.enqueue); err != nil {
		return nil, err
	}
	c.namespacesSynced, err = feed.OnChange(c.namespaceInformer, c.enqueue)
	return c, err
}

// dropUnreported keeps out of memory what of a namespace can be large and is not
// reported.
func dropUnreported(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	return obj, nil
}

func (c *Controller) enqueue(object metav1.Object) { c.queue.Add(object.GetName()) }

// Synced reports whether the controller knows all namespaces and all reports.
func (c *Controller) Synced() bool { return c.reportsSynced() && c.namespacesSynced() }

// Unserved reports whether the hub has no ClusterNamespaces for this agent: it
// does not serve them, or does not allow the agent to see them.
func (c *Controller) Unserved() bool { return !c.reportsSynced() && c.hubReports.Absent() }

// Stuck returns an error that names the objects from which workers do not return, or
// nil if there are none.
func (c *Controller) Stuck() error { return c.watchdog.Err() }

// Run works until ctx ends, and returns when all it started has ended.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer func() {
		c.queue.ShutDown()
		running.Wait()
	}()
	running.Go(func() { c.reportInformer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.reportsSynced) {
		return nil
	}
	running.Go(func() { c.namespaceInformer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.namespacesSynced) {
		return nil
	}
	klog.FromContext(ctx).Info("Reporting namespaces", "cluster", c.clusterName, "workers", workers)
	running.Go(func() { c.watchdog.Run(ctx) })
	for range workers {
		running.Go(func() { feed.Work(ctx, c.queue, c.watchdog, c.pass) })
	}
	<-ctx.Done()
	return nil
}

// pass makes one pass over a namespace, and sees to it that a failed one is tried again.
func (c *Controller) pass(ctx context.Context, name string) {
	logger := klog.FromContext(ctx).WithValues("reportedNamespace", name)
	passCtx, cancel := context.WithTimeout(klog.NewContext(ctx, logger), passTimeout)
	defer cancel()
	start := time.Now()
	err := c.reconcile(passCtx, name)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		passSeconds.WithLabelValues("success").Observe(time.Since(start).Seconds())
		c.backoff.Forget(name)
		c.complaints.Delete(name)
		if c.parked.isProbe(name) {
			logger.Info("The hub has room for more ClusterNamespaces")
			c.release()
		}
		return
	}
	passSeconds.WithLabelValues("error").Observe(time.Since(start).Seconds())
	if refusal.IsQuotaExceeded(err) {
		c.park(logger, name, err)
		return
	}
	// At most the backoff, at least two thirds of it.
	delay := wait.Jitter(c.backoff.When(name)*2/3, 0.5)
	if apierrors.IsInvalid(err) {
		delay = wait.Jitter(invalidRetry*2/3, 0.5)
	}
	c.queue.AddAfter(name, delay)
	if isOutrun(err) {
		logger.V(2).Info("The hub has another version than the agent has seen", "err", err, "retryAfter", delay)
		return
	}
	if before, _ := c.complaints.Swap(name, err.Error()); before == err.Error() {
		logger.V(2).Info("Namespace is still not reported", "err", err, "retryAfter", delay)
		return
	}
	logger.Error(err, "Namespace is not reported", "retryAfter", delay)
}

// park keeps a namespace that the quota of the hub has refused until there may be room.
func (c *Controller) park(logger klog.Logger, name string, err error) {
	probe, first := c.parked.refuse(name)
	if !probe {
		return
	}
	delay := wait.Jitter(fullRetry*2/3, 0.5)
	c.queue.AddAfter(name, delay)
	if first {
		logger.Error(err, "The hub has no room for more ClusterNamespaces; namespaceSelectors do not select those that are missing", "retryAfter", delay)
	}
}

// release tries again to report what has no room on the hub.
func (c *Controller) release() {
	for _, name := range c.parked.release() {
		c.queue.Add(name)
	}
}

// isOutrun reports whether a write came to nothing because the watch of the hub
// has yet to show what is there.
func isOutrun(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
