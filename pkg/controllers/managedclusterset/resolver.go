package managedclusterset

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	setinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1beta2"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	setlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// bySet indexes bindings by their set.
	bySet = "byClusterSet"
	// byLabel indexes clusters by the set in their label.
	byLabel = "byClusterSetLabel"
)

// Resolver finds the clusters of sets and namespaces in caches.
type Resolver struct {
	sets     setlisters.ManagedClusterSetLister
	bindings setlisters.ManagedClusterSetBindingLister
	clusters clusterlisters.ManagedClusterLister

	bindingIndex, clusterIndex cache.Indexer
}

// NewResolver returns a Resolver. The caller starts the informers afterwards.
func NewResolver(sets setinformers.ManagedClusterSetInformer, bindings setinformers.ManagedClusterSetBindingInformer, clusters clusterinformers.ManagedClusterInformer) (*Resolver, error) {
	err := bindings.Informer().AddIndexers(cache.Indexers{bySet: reconcile.Index(func(binding *clusterv1beta2.ManagedClusterSetBinding) []string {
		return []string{binding.Spec.ClusterSet}
	})})
	if err != nil {
		return nil, fmt.Errorf("indexing ManagedClusterSetBindings: %w", err)
	}
	err = clusters.Informer().AddIndexers(cache.Indexers{byLabel: reconcile.Index(func(cluster *clusterv1.ManagedCluster) []string {
		return []string{clusterv1beta2.ExclusiveSet(cluster.Labels)}
	})})
	if err != nil {
		return nil, fmt.Errorf("indexing ManagedClusters: %w", err)
	}
	return &Resolver{
		sets: sets.Lister(), bindings: bindings.Lister(), clusters: clusters.Lister(),
		bindingIndex: bindings.Informer().GetIndexer(), clusterIndex: clusters.Informer().GetIndexer(),
	}, nil
}

// Clusters returns the sorted names of the clusters of all sets that are bound to a namespace, and
// reports whether any set is bound. A set that is being deleted still applies. A binding that is
// being deleted does not.
//
// Clusters returns an error for a set with an invalid selector. It does not treat it as an empty
// set, because that would remove clusters.
func (r *Resolver) Clusters(namespace string) (names []string, bound bool, err error) {
	sets, err := r.boundSets(namespace)
	if err != nil {
		return nil, false, err
	}
	for _, set := range sets {
		selected, err := r.members(set)
		if err != nil {
			return nil, false, err
		}
		for _, cluster := range selected {
			names = append(names, cluster.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), len(sets) > 0, nil
}

// boundSets returns the existing sets that are bound to a namespace.
func (r *Resolver) boundSets(namespace string) (sets []*clusterv1beta2.ManagedClusterSet, err error) {
	bindings, err := r.bindings.ManagedClusterSetBindings(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, binding := range bindings {
		if binding.DeletionTimestamp != nil {
			continue
		}
		set, err := r.sets.Get(binding.Spec.ClusterSet)
		if err == nil {
			sets = append(sets, set)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return sets, nil
}

// Members returns the sorted names of the clusters of a set, and reports whether the set exists. A set that is
// being deleted still applies.
func (r *Resolver) Members(name string) (names []string, found bool, err error) {
	set, err := r.sets.Get(name)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	members, err := r.members(set)
	if err != nil {
		return nil, true, err
	}
	for _, cluster := range members {
		names = append(names, cluster.Name)
	}
	slices.Sort(names)
	return names, true, nil
}

// members returns the clusters of a set.
func (r *Resolver) members(set *clusterv1beta2.ManagedClusterSet) ([]*clusterv1.ManagedCluster, error) {
	if isExclusive(set) {
		return reconcile.Indexed[*clusterv1.ManagedCluster](r.clusterIndex, byLabel, set.Name), nil
	}
	selector, err := selectorOf(set)
	if err != nil {
		return nil, err
	}
	return r.clusters.List(selector)
}

// SetsOf returns the names of the sets of a cluster in the given state.
func (r *Resolver) SetsOf(cluster *clusterv1.ManagedCluster) ([]string, error) {
	sets, err := r.sets.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, set := range sets {
		// A set with an invalid selector is skipped: its clusters are unknown before and after a change.
		if selected, err := Selects(set, cluster); err == nil && selected {
			names = append(names, set.Name)
		}
	}
	return names, nil
}

// NamespacesOf returns the sorted namespaces that a change of a set may affect: the namespaces with
// a binding of the set, even if the set does not exist or the binding is being deleted.
func (r *Resolver) NamespacesOf(set string) []string {
	var namespaces []string
	for _, binding := range r.bindingsOf(set) {
		namespaces = append(namespaces, binding.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// Namespaces returns the sorted namespaces that may use a cluster in the given state. If a change
// moves the cluster to another set, the results for the states before and after the change differ.
func (r *Resolver) Namespaces(cluster *clusterv1.ManagedCluster) []string {
	sets, err := r.SetsOf(cluster)
	if err != nil {
		utilruntime.HandleError(err)
	}
	var namespaces []string
	for _, set := range sets {
		namespaces = append(namespaces, r.NamespacesOf(set)...)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

func (r *Resolver) bindingsOf(set string) []*clusterv1beta2.ManagedClusterSetBinding {
	return reconcile.Indexed[*clusterv1beta2.ManagedClusterSetBinding](r.bindingIndex, bySet, set)
}
