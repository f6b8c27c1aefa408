package clustersets

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	setinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1beta2"
	clusterlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1"
	setlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/cluster/v1beta2"
)

const (
	// bySet indexes bindings by the set that they bind.
	bySet = "byClusterSet"
	// byLabel indexes clusters by the one set that they are in by their label.
	byLabel = "byClusterSetLabel"
)

// Resolver answers from caches which clusters a namespace may use. NewResolver
// returns one.
type Resolver struct {
	sets     setlisters.ManagedClusterSetLister
	bindings setlisters.ManagedClusterSetBindingLister
	clusters clusterlisters.ManagedClusterLister

	bindingIndex, clusterIndex cache.Indexer
}

// NewResolver returns a Resolver that reads the given informers, which the caller
// starts afterwards.
func NewResolver(sets setinformers.ManagedClusterSetInformer, bindings setinformers.ManagedClusterSetBindingInformer, clusters clusterinformers.ManagedClusterInformer) (*Resolver, error) {
	err := bindings.Informer().AddIndexers(cache.Indexers{bySet: func(obj any) ([]string, error) {
		if binding, ok := obj.(*clusterv1beta2.ManagedClusterSetBinding); ok {
			return []string{binding.Spec.ClusterSet}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("indexing ManagedClusterSetBindings: %w", err)
	}
	err = clusters.Informer().AddIndexers(cache.Indexers{byLabel: func(obj any) ([]string, error) {
		if cluster, ok := obj.(*clusterv1.ManagedCluster); ok {
			return []string{clusterv1beta2.ExclusiveSet(cluster.Labels)}, nil
		}
		return nil, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("indexing ManagedClusters: %w", err)
	}
	return &Resolver{
		sets: sets.Lister(), bindings: bindings.Lister(), clusters: clusters.Lister(),
		bindingIndex: bindings.Informer().GetIndexer(), clusterIndex: clusters.Informer().GetIndexer(),
	}, nil
}

// Clusters returns, sorted, the names of the clusters that a namespace may use:
// those of all sets that are bound to it. It tells whether any is. A set counts
// until it is gone, a binding until somebody deletes it.
//
// A set whose selector cannot be understood is an error and not an empty set,
// since nobody knows which clusters it would take away.
func (r *Resolver) Clusters(namespace string) (names []string, bound bool, err error) {
	bindings, err := r.bindings.ManagedClusterSetBindings(namespace).List(labels.Everything())
	if err != nil {
		return nil, false, err
	}
	for _, binding := range bindings {
		if binding.DeletionTimestamp != nil {
			continue
		}
		set, err := r.sets.Get(binding.Spec.ClusterSet)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		selected, err := r.members(set)
		if err != nil {
			return nil, false, err
		}
		bound = true
		for _, cluster := range selected {
			names = append(names, cluster.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), bound, nil
}

// Missing returns, sorted, the names of the sets that are bound to a namespace and
// do not exist.
func (r *Resolver) Missing(namespace string) ([]string, error) {
	bindings, err := r.bindings.ManagedClusterSetBindings(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, binding := range bindings {
		if binding.DeletionTimestamp != nil {
			continue
		}
		_, err := r.sets.Get(binding.Spec.ClusterSet)
		if apierrors.IsNotFound(err) {
			names = append(names, binding.Spec.ClusterSet)
		} else if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}

// members are the clusters of a set.
func (r *Resolver) members(set *clusterv1beta2.ManagedClusterSet) ([]*clusterv1.ManagedCluster, error) {
	if isExclusive(set) {
		return indexed[*clusterv1.ManagedCluster](r.clusterIndex, byLabel, set.Name)
	}
	selector, err := selectorOf(set)
	if err != nil {
		return nil, err
	}
	return r.clusters.List(selector)
}

// SetsOf returns the names of the sets that a cluster, in the given state, is in.
func (r *Resolver) SetsOf(cluster *clusterv1.ManagedCluster) ([]string, error) {
	sets, err := r.sets.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var names []string
	for _, set := range sets {
		// A set whose selector cannot be understood has no cluster to lose or to win.
		if selected, err := Selects(set, cluster); err == nil && selected {
			names = append(names, set.Name)
		}
	}
	return names, nil
}

// NamespacesOf returns, sorted, the namespaces with a binding of a set, whether
// the set exists or not and the binding is being deleted or not: those that a
// change of the set may concern.
func (r *Resolver) NamespacesOf(set string) ([]string, error) {
	bindings, err := r.bindingsOf(set)
	if err != nil {
		return nil, err
	}
	namespaces := make([]string, 0, len(bindings))
	for _, binding := range bindings {
		namespaces = append(namespaces, binding.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), nil
}

// Namespaces returns, sorted, the namespaces that may use a cluster in the given
// state: those that a change of it concerns. If the change moves it from one set
// to another, they differ for its former and its present state.
func (r *Resolver) Namespaces(cluster *clusterv1.ManagedCluster) ([]string, error) {
	sets, err := r.SetsOf(cluster)
	if err != nil {
		return nil, err
	}
	var namespaces []string
	for _, set := range sets {
		of, err := r.NamespacesOf(set)
		if err != nil {
			return nil, err
		}
		namespaces = append(namespaces, of...)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), nil
}

func (r *Resolver) bindingsOf(set string) ([]*clusterv1beta2.ManagedClusterSetBinding, error) {
	return indexed[*clusterv1beta2.ManagedClusterSetBinding](r.bindingIndex, bySet, set)
}

func indexed[T any](indexer cache.Indexer, index, value string) ([]T, error) {
	objects, err := indexer.ByIndex(index, value)
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(objects))
	for _, object := range objects {
		if typed, ok := object.(T); ok {
			out = append(out, typed)
		}
	}
	return out, nil
}
