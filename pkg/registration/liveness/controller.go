// Package liveness derives from Leases whether the agents of managed clusters are alive, and taints clusters that are
// unreachable.
//
//	Lease renewed ──────────► condition ClockSynced
//	not renewed for long ───► condition Available=Unknown
//	condition Available ────► taints unreachable, unavailable
//
// The controller uses the hub's clock: a renewal takes effect when it is observed. After a start, each cluster has its
// full grace period.
package liveness

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

// Options configure a Controller. All are required.
type Options struct {
	Clusters clusterclient.ManagedClustersGetter
	// ClusterInformer sends events. The caller starts it.
	ClusterInformer clusterinformers.ManagedClusterInformer
	// Leases reads the stored Lease before a cluster is reported as unreachable.
	Leases coordinationclient.LeasesGetter
	// LeaseInformer caches at least the Leases with the cluster label. The caller starts it.
	LeaseInformer coordinationinformers.LeaseInformer
	Clock         clock.WithTicker
}

// Controller writes conditions according to the Leases of clusters, and taints according to the conditions. Only one
// replica runs it.
type Controller struct {
	Options
	loop reconcile.Loop

	mu sync.Mutex
	// seen contains the observations of each accepted cluster. Only the worker that reconciles a cluster uses its element.
	seen map[string]*sighting
}

// NewController returns a Controller.
func NewController(options Options) *Controller {
	c := &Controller{Options: options, seen: map[string]*sighting{}}
	c.loop = reconcile.Loop{
		Name:          "registration-liveness",
		Clock:         options.Clock,
		Reconcile:     c.reconcile,
		ReportsStates: true,
		Feeds: []reconcile.Feed{
			{Informer: options.ClusterInformer.Informer(), Keys: reconcile.Own},
			{Informer: options.LeaseInformer.Informer(), Keys: reconcile.Keys(clusterOf)},
		},
	}
	return c
}

// Run runs the controller until ctx ends, and returns after all workers have stopped. It may be called again
// afterwards.
func (c *Controller) Run(ctx context.Context) {
	// Observations of an earlier run are out of date.
	c.mu.Lock()
	clear(c.seen)
	c.mu.Unlock()
	c.loop.Run(ctx)
}

func clusterOf(lease *coordinationv1.Lease) []cache.ObjectName {
	if lease.Name != registration.LeaseName {
		return nil
	}
	return []cache.ObjectName{{Name: lease.Namespace}}
}

func (c *Controller) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	cluster, err := reconcile.OrNil(c.ClusterInformer.Lister().Get(name.Name))
	if err != nil {
		return 0, err
	}
	if cluster == nil || cluster.DeletionTimestamp != nil {
		c.forget(name.Name)
		c.loop.SetState(name, "")
		return 0, nil
	}
	c.loop.SetState(name, stateOf(cluster))
	if !cluster.Spec.HubAcceptsClient {
		c.forget(name.Name)
		return 0, c.denied(ctx, cluster)
	}
	lease, err := reconcile.OrNil(c.LeaseInformer.Lister().Leases(name.Name).Get(registration.LeaseName))
	if err != nil {
		return 0, err
	}
	s := c.sightingOf(cluster, lease)
	s.renewed(lease, cluster, c.Clock.Now())

	update := cluster.DeepCopy()
	var again time.Duration
	var expired bool
	// The agent of a cluster that has not joined yet cannot renew the Lease.
	if meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionJoined) {
		left, err := c.left(ctx, s, cluster)
		if err != nil {
			return 0, err
		}
		if left > 0 {
			again = left
		} else if !isUnknown(cluster) {
			setCondition(update, stopped(cluster), c.Clock.Now())
		}
		expired = left <= 0
	}
	if cluster.Annotations[clusterv1.SkipClockSyncCheckAnnotation] == "true" {
		meta.RemoveStatusCondition(&update.Status.Conditions, clusterv1.ManagedClusterConditionClockSynced)
	} else if s.clockSynced != nil {
		setCondition(update, *s.clockSynced, c.Clock.Now())
	}
	err = c.write(ctx, cluster, update)
	if reconcile.Outdated(err) {
		// The object changed or was deleted since it was read, and an event follows.
		return again, nil
	}
	s.expired = expired && err == nil
	return again, err
}

// denied sets the state of a denied cluster to unknown, since its agent cannot report. A cluster that was never accepted
// has no state.
func (c *Controller) denied(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	if !registration.EverAccepted(cluster) || isUnknown(cluster) ||
		meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable) == nil {
		return nil
	}
	update := cluster.DeepCopy()
	setCondition(update, metav1.Condition{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionUnknown, Reason: clusterv1.ReasonHubClusterAdminDenied,
		Message: "The hub does not accept the managed cluster, so its agent cannot report.",
	}, c.Clock.Now())
	return reconcile.IgnoreOutdated(c.write(ctx, cluster, update))
}

// sightingOf returns the observations of a cluster. Without any, the grace period begins now.
func (c *Controller) sightingOf(cluster *clusterv1.ManagedCluster, lease *coordinationv1.Lease) *sighting {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.seen[cluster.Name]
	if s == nil || s.cluster != cluster.UID {
		s = &sighting{cluster: cluster.UID, at: c.Clock.Now(), renewTime: renewTime(lease)}
		c.seen[cluster.Name] = s
	}
	return s
}

func (c *Controller) forget(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, cluster)
}

// left returns the rest of a cluster's grace period, or 0 if the cluster is unreachable. It reads the stored Lease
// before it returns 0: while the hub does not respond, agents cannot renew either.
func (c *Controller) left(ctx context.Context, s *sighting, cluster *clusterv1.ManagedCluster) (time.Duration, error) {
	grace := gracePeriod(cluster)
	if left := s.at.Add(grace).Sub(c.Clock.Now()); left > 0 {
		return left, nil
	}
	if s.expired {
		if isUnknown(cluster) {
			return 0, nil
		}
		// The agent reported after that, so it is alive.
		s.at = c.Clock.Now()
		return grace, nil
	}
	lease, err := c.Leases.Leases(cluster.Name).Get(ctx, registration.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		s.at = c.Clock.Now()
		return 0, fmt.Errorf("reading the Lease of ManagedCluster %q: %w", cluster.Name, err)
	}
	if renewed := renewTime(lease); !renewed.IsZero() && !renewed.Equal(s.renewTime) && !renewed.Equal(s.readTime) {
		s.at, s.readTime = c.Clock.Now(), renewed
		return grace, nil
	}
	return 0, nil
}

// write stores the changed conditions of a cluster, and the taints that follow from them.
func (c *Controller) write(ctx context.Context, cluster, update *clusterv1.ManagedCluster) error {
	if !equality.Semantic.DeepEqual(cluster.Status, update.Status) {
		written, err := c.Clusters.ManagedClusters().UpdateStatus(ctx, update, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("writing the status of ManagedCluster %q: %w", cluster.Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Reported the state of an agent", "cluster", cluster.Name, "conditions", written.Status.Conditions)
		update = written.DeepCopy()
	}
	taints := withOwnTaints(update)
	if equality.Semantic.DeepEqual(taints, update.Spec.Taints) {
		return nil
	}
	update.Spec.Taints = taints
	if _, err := c.Clusters.ManagedClusters().Update(ctx, update, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the taints of ManagedCluster %q: %w", cluster.Name, err)
	}
	return nil
}
