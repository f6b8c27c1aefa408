package manifestwork

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/work/v1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	workinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/work/v1"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// WaitingController reports ManifestWorks whose cluster has not joined. It sets their condition Applied until a
// ManagedCluster exists. From then on, the condition belongs to the agent.
type WaitingController struct {
	reconcile.Loop
	client   workclient.ManifestWorksGetter
	works    worklisters.ManifestWorkLister
	clusters clusterlisters.ManagedClusterLister
}

// NewWaitingController returns a WaitingController. The caller starts the informers.
func NewWaitingController(client workclient.ManifestWorksGetter, works workinformers.ManifestWorkInformer, clusters clusterinformers.ManagedClusterInformer) *WaitingController {
	c := &WaitingController{client: client, works: works.Lister(), clusters: clusters.Lister()}
	c.Loop = reconcile.Loop{
		Name:      "manifestwork-waiting",
		Reconcile: c.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: works.Informer(), Keys: reconcile.Own},
			{Informer: clusters.Informer(), Keys: reconcile.Keys(c.clusterKeys), Ignore: reconcile.Always},
		},
	}
	return c
}

func (c *WaitingController) clusterKeys(cluster metav1.Object) []cache.ObjectName {
	return reconcile.Listed(c.works.ManifestWorks(cluster.GetName()).List(labels.Everything()))
}

func (c *WaitingController) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	work, err := reconcile.OrNil(c.works.ManifestWorks(name.Namespace).Get(name.Name))
	if work == nil || err != nil {
		return 0, err
	}
	cluster, err := reconcile.OrNil(c.clusters.Get(name.Namespace))
	if err != nil {
		return 0, err
	}
	update := withWaiting(work, cluster != nil)
	if update == nil {
		return 0, nil
	}
	_, err = c.client.ManifestWorks(name.Namespace).UpdateStatus(ctx, update, metav1.UpdateOptions{})
	return 0, reconcile.IgnoreOutdated(err)
}

// withWaiting returns a ManifestWork with the condition that it waits for its cluster, or without it if the cluster has
// joined. It returns nil if nothing changes.
func withWaiting(work *workv1.ManifestWork, joined bool) *workv1.ManifestWork {
	applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	update := work.DeepCopy()
	switch {
	case joined && applied != nil && applied.Reason == workv1.ReasonWaitingForManagedCluster:
		meta.RemoveStatusCondition(&update.Status.Conditions, workv1.WorkApplied)
	case !joined && applied == nil && work.DeletionTimestamp == nil:
		// The condition has no observedGeneration, since no agent has observed the ManifestWork.
		meta.SetStatusCondition(&update.Status.Conditions, metav1.Condition{
			Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: workv1.ReasonWaitingForManagedCluster,
			Message: fmt.Sprintf("There is no ManagedCluster %q. The ManifestWork is applied when the cluster joins.", work.Namespace),
		})
	default:
		return nil
	}
	return update
}
