package namespaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/refusal"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	rbacclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/rbac/v1alpha1"
	rbacinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/rbac/v1alpha1"
	rbaclisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// workers is the number of namespaces that are reported in parallel. It is small, because
	// thousands of namespaces at the first start must not delay ManifestWorks and accounts.
	workers = 4
	// fullRetry is the delay after the quota of the hub rejects a report, in which no other report is created.
	// invalidRetry is the delay after the hub rejects labels that exceed its limits. Quotas and limits seldom change.
	fullRetry    = 2 * time.Minute
	invalidRetry = 30 * time.Minute
	// stateWaiting is the state, in the metric, of namespaces for which the quota of the hub has no room.
	stateWaiting = "waiting"
)

// errFull is the error of a namespace that waits because the quota of the hub had no room for another one.
var errFull = errors.New("the quota of the hub is exhausted")

// Config is the configuration of a Controller. All fields are required.
type Config struct {
	// ClusterName is also the namespace of the ClusterNamespaces on the hub.
	ClusterName string
	Hub         versioned.Interface
	Managed     metadata.Interface
}

// Controller reports the namespaces of one managed cluster. Its loop reconciles namespaces by name.
type Controller struct {
	clusterName string
	hub         rbacclient.ClusterNamespaceInterface
	hubReports  reconcile.Optional

	reportInformer, namespaceInformer cache.SharedIndexInformer
	reports                           rbaclisters.ClusterNamespaceNamespaceLister
	namespaces                        metadatalister.Lister

	loop reconcile.Loop
	// full is the time in nanoseconds until which the quota of the hub is taken to be exhausted, or 0.
	full atomic.Int64
}

// New returns a controller. It makes no request.
func New(config Config) (*Controller, error) {
	resource := corev1.SchemeGroupVersion.WithResource("namespaces")
	c := &Controller{
		clusterName: config.ClusterName,
		hub:         config.Hub.RbacV1alpha1().ClusterNamespaces(config.ClusterName),
		hubReports:  reconcile.Optional{Resource: "ClusterNamespaces"},
		reportInformer: rbacinformers.NewClusterNamespaceInformer(config.Hub, config.ClusterName, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		namespaceInformer: metadatainformer.NewFilteredMetadataInformer(config.Managed, resource,
			metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(),
	}
	c.reports = rbaclisters.NewClusterNamespaceLister(c.reportInformer.GetIndexer()).ClusterNamespaces(config.ClusterName)
	c.namespaces = metadatalister.New(c.namespaceInformer.GetIndexer(), resource)
	c.loop = reconcile.Loop{
		Name: "clusternamespace",
		// A ClusterNamespace has the name of its namespace.
		Feeds:     []reconcile.Feed{{Informer: c.reportInformer, Keys: reconcile.ByName}, {Informer: c.namespaceInformer, Keys: reconcile.ByName}},
		Reconcile: c.pass, Retry: c.retry,
		Workers: workers, TenantWorkers: workers,
		ReportsStates: true,
	}
	return c, errors.Join(
		c.reportInformer.SetTransform(reconcile.DropManagedFields),
		c.namespaceInformer.SetTransform(dropUnreported),
		c.reportInformer.SetWatchErrorHandlerWithContext(c.hubReports.NotWatched),
	)
}

// dropUnreported removes fields that are not reported and may be large, to save memory.
func dropUnreported(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	return obj, nil
}

// Synced reports whether all namespaces and all reports are known.
func (c *Controller) Synced() bool {
	return c.reportInformer.HasSynced() && c.namespaceInformer.HasSynced()
}

// Unserved reports whether the hub does not serve ClusterNamespaces, or does not allow the agent
// to watch them.
func (c *Controller) Unserved() bool { return !c.reportInformer.HasSynced() && c.hubReports.Absent() }

// Run reports namespaces until ctx ends. It returns when all its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.reportInformer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.reportInformer.HasSynced) {
		return nil
	}
	running.Go(func() { c.namespaceInformer.RunWithContext(ctx) })
	klog.FromContext(ctx).Info("Reporting namespaces", "cluster", c.clusterName, "workers", workers)
	c.loop.Run(ctx)
	return nil
}

func (c *Controller) pass(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	err := c.reconcile(ctx, key.Name)
	state := ""
	switch {
	case errors.Is(err, errFull):
		err, state = reconcile.RequeueAfter(max(time.Until(time.Unix(0, c.full.Load())), 0)), stateWaiting
	case refusal.IsQuotaExceeded(err):
		state = stateWaiting
	case err != nil:
		state = reconcile.StateFailed
	}
	c.loop.SetState(key, state)
	return 0, err
}

// retry returns the delay before a namespace is retried after an error. If the quota of the hub rejects a
// namespace, all others wait as long without a request.
func (c *Controller) retry(_ cache.ObjectName, err error, delay time.Duration) time.Duration {
	switch {
	case refusal.IsQuotaExceeded(err):
		delay = wait.Jitter(fullRetry*2/3, 0.5)
		if c.full.Swap(time.Now().Add(delay).UnixNano()) == 0 {
			klog.Background().Error(err, "The quota of the hub is exhausted; namespaceSelectors do not select namespaces that are not reported")
		}
	case apierrors.IsInvalid(err):
		delay = wait.Jitter(invalidRetry*2/3, 0.5)
	}
	return delay
}

// release retries the namespaces that wait, because the quota of the hub has room again.
func (c *Controller) release(ctx context.Context) {
	if c.full.Swap(0) == 0 {
		return
	}
	klog.FromContext(ctx).Info("The quota of the hub has room for more ClusterNamespaces again")
	namespaces, _ := c.namespaces.List(labels.Everything()) // a lister does not fail
	for _, namespace := range namespaces {
		c.loop.Add(cache.ObjectName{Name: namespace.Name})
	}
}

// reconcile creates, updates or deletes the report of a namespace. It makes at most one request.
// The watch event of the result triggers the next pass.
func (c *Controller) reconcile(ctx context.Context, name string) error {
	// The only error of a lister is that the informer does not contain the object.
	namespace, _ := c.namespaces.Get(name)
	report, _ := c.reports.Get(name)
	var err error
	operation := ""
	switch exists := namespace != nil && namespace.DeletionTimestamp == nil; {
	case exists && report == nil:
		if time.Now().UnixNano() < c.full.Load() {
			return errFull
		}
		operation = "create"
		_, err = c.hub.Create(ctx, filled(&v1alpha1.ClusterNamespace{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.clusterName}}, namespace), metav1.CreateOptions{})
	case exists && !matches(report, namespace):
		operation = "update"
		_, err = c.hub.Update(ctx, filled(report.DeepCopy(), namespace), metav1.UpdateOptions{})
	case !exists && report != nil && report.DeletionTimestamp == nil:
		operation = "delete"
		// The UID precondition protects a newer ClusterNamespace with the same name.
		err = c.hub.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(report.UID))})
		if apierrors.IsNotFound(err) {
			return nil
		}
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s ClusterNamespace: %w", operation, err)
	}
	if operation != "update" {
		c.release(ctx)
	}
	return nil
}

func matches(report *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) bool {
	return report.Spec.NamespaceUID == namespace.UID && maps.Equal(report.Labels, namespace.Labels)
}

func filled(report *v1alpha1.ClusterNamespace, namespace *metav1.PartialObjectMetadata) *v1alpha1.ClusterNamespace {
	report.Labels = namespace.Labels
	report.Spec.NamespaceUID = namespace.UID
	return report
}
