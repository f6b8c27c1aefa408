package managedclusterset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	clusterclient "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// conflictRetry is the delay of the next attempt after a conflict.
const conflictRetry = 200 * time.Millisecond

// NamespaceController lists in the status of each ManagedCluster the namespaces that its sets require. It
// keeps the conditions that agents report for them. It runs on one replica at a time. It does not run on
// a hub with the controllers of OCM.
type NamespaceController struct {
	reconcile.Loop
	clusters clusterclient.ClusterV1Interface
	resolver *Resolver
}

// NewNamespaceController returns a NamespaceController.
func NewNamespaceController(client clusterclient.ClusterV1Interface, resolver *Resolver) *NamespaceController {
	c := &NamespaceController{clusters: client, resolver: resolver}
	c.Loop = reconcile.Loop{
		Name:      "managednamespaces",
		Reconcile: c.reconcile,
		Feeds: []reconcile.Feed{
			{Informer: resolver.clusters.Informer(), Keys: reconcile.Own, Ignore: reconcile.Same(sameCluster)},
			// If a cluster leaves the set, its labels or the selector have changed, and the event
			// contains the previous state as well.
			{Informer: resolver.sets.Informer(), Keys: reconcile.Keys(c.clustersOf), Ignore: reconcile.Same(sameSpec)},
		},
	}
	return c
}

// sameCluster reports whether an update of a cluster keeps its sets and its list of namespaces, except for their conditions.
func sameCluster(before, after *clusterv1.ManagedCluster) bool {
	return SameLabels(before, after) && slices.EqualFunc(before.Status.ManagedNamespaces, after.Status.ManagedNamespaces, sameNamespace)
}

// sameSpec reports whether an update of a set keeps its spec.
func sameSpec(before, after *clusterv1beta2.ManagedClusterSet) bool {
	return before.UID == after.UID && before.Generation == after.Generation && before.DeletionTimestamp.Equal(after.DeletionTimestamp)
}

func (c *NamespaceController) clustersOf(set *clusterv1beta2.ManagedClusterSet) []cache.ObjectName {
	return reconcile.Listed(c.resolver.members(set))
}

func (c *NamespaceController) reconcile(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	cluster, err := reconcile.OrNil(c.resolver.clusters.Lister().Get(name.Name))
	if err != nil || cluster == nil || cluster.DeletionTimestamp != nil {
		return 0, err
	}
	required, err := c.resolver.namespaces(cluster)
	if err != nil {
		return 0, err
	}
	listed := fitting(required, cluster.Status.ManagedNamespaces)
	updated := cluster.DeepCopy()
	updated.Status.ManagedNamespaces = listed
	changed := !slices.EqualFunc(listed, cluster.Status.ManagedNamespaces, sameNamespace)
	if len(listed) < len(required) {
		changed = meta.SetStatusCondition(&updated.Status.Conditions, metav1.Condition{
			Type: clusterv1.ManagedClusterConditionNamespacesListed, Status: metav1.ConditionFalse, Reason: clusterv1.ReasonTooManyNamespaces,
			Message: fmt.Sprintf("The ManagedClusterSets of the cluster require %d namespaces, but the status lists at most %d", len(required), len(listed)),
		}) || changed
	} else {
		changed = meta.RemoveStatusCondition(&updated.Status.Conditions, clusterv1.ManagedClusterConditionNamespacesListed) || changed
	}
	if !changed {
		return 0, nil
	}
	_, err = c.clusters.ManagedClusters().UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		// The feed ignores writes of agents, so no event follows.
		return conflictRetry, nil
	}
	return 0, reconcile.IgnoreOutdated(err)
}

// namespaces returns the namespaces that the sets of a cluster require, sorted by set and name. Sets that
// are being deleted require none.
func (r *Resolver) namespaces(cluster *clusterv1.ManagedCluster) ([]clusterv1.ClusterSetManagedNamespaceConfig, error) {
	sets, err := r.selecting(cluster)
	if err != nil {
		return nil, err
	}
	var required []clusterv1.ClusterSetManagedNamespaceConfig
	for _, set := range sets {
		if set.DeletionTimestamp != nil {
			continue
		}
		for _, namespace := range set.Spec.ManagedNamespaces {
			required = append(required, clusterv1.ClusterSetManagedNamespaceConfig{ClusterSet: set.Name, Name: namespace.Name})
		}
	}
	slices.SortFunc(required, compareNamespaces)
	// Sets from CustomResourceDefinitions may contain duplicates.
	return slices.CompactFunc(required, sameNamespace), nil
}

// fitting returns the required namespaces that fit into a status, with their reported conditions.
// If there are too many, namespaces that are already listed have priority.
func fitting(required, listed []clusterv1.ClusterSetManagedNamespaceConfig) []clusterv1.ClusterSetManagedNamespaceConfig {
	type key struct{ set, name string }
	conditions := make(map[key][]metav1.Condition, len(listed))
	for _, namespace := range listed {
		conditions[key{namespace.ClusterSet, namespace.Name}] = namespace.Conditions
	}
	var known, others []clusterv1.ClusterSetManagedNamespaceConfig
	for _, namespace := range required {
		reported, ok := conditions[key{namespace.ClusterSet, namespace.Name}]
		if !ok {
			others = append(others, namespace)
			continue
		}
		namespace.Conditions = reported
		known = append(known, namespace)
	}
	out := append(known, others...)
	out = out[:min(len(out), clusterv1.MaxManagedNamespaces)]
	slices.SortFunc(out, compareNamespaces)
	return out
}

func compareNamespaces(a, b clusterv1.ClusterSetManagedNamespaceConfig) int {
	return cmp.Or(cmp.Compare(a.ClusterSet, b.ClusterSet), cmp.Compare(a.Name, b.Name))
}

func sameNamespace(a, b clusterv1.ClusterSetManagedNamespaceConfig) bool {
	return compareNamespaces(a, b) == 0
}
