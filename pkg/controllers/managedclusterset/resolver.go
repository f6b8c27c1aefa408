package managedclusterset

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	setinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1beta2"
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
	sets     setinformers.ManagedClusterSetInformer
	bindings setinformers.ManagedClusterSetBindingInformer
	clusters clusterinformers.ManagedClusterInformer
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
	sets.Informer() // so that its factory starts it
	return &Resolver{sets: sets, bindings: bindings, clusters: clusters}, nil
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
	bindings, err := r.bindings.Lister().ManagedClusterSetBindings(namespace).List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, binding := range bindings {
		if binding.DeletionTimestamp != nil {
			continue
		}
		set, err := r.sets.Lister().Get(binding.Spec.ClusterSet)
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
	set, err := reconcile.OrNil(r.sets.Lister().Get(name))
	if err != nil || set == nil {
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
		return reconcile.Indexed[*clusterv1.ManagedCluster](r.clusters.Informer().GetIndexer(), byLabel, set.Name), nil
	}
	selector, err := selectorOf(set)
	if err != nil {
		return nil, err
	}
	return r.clusters.Lister().List(selector)
}

// SetsOf returns the names of the sets of a cluster in the given state.
func (r *Resolver) SetsOf(cluster *clusterv1.ManagedCluster) (names []string, err error) {
	selecting, err := r.selecting(cluster)
	for _, set := range selecting {
		names = append(names, set.Name)
	}
	return names, err
}

// selecting returns the sets of a cluster in the given state.
func (r *Resolver) selecting(cluster *clusterv1.ManagedCluster) ([]*clusterv1beta2.ManagedClusterSet, error) {
	all, err := r.sets.Lister().List(labels.Everything())
	return slices.DeleteFunc(all, func(set *clusterv1beta2.ManagedClusterSet) bool {
		// A set with an invalid selector is skipped: its clusters are unknown before and after a change.
		selected, err := Selects(set, cluster)
		return err != nil || !selected
	}), err
}

// NamespacesOf returns the sorted namespaces that a change of sets may affect: the namespaces with a binding of a set, even
// if the set does not exist or the binding is being deleted.
func (r *Resolver) NamespacesOf(names ...string) []string {
	namespaces := sets.New[string]()
	for _, set := range names {
		for _, binding := range r.bindingsOf(set) {
			namespaces.Insert(binding.Namespace)
		}
	}
	return sets.List(namespaces)
}

// Namespaces returns the sorted namespaces that may use a cluster in the given state. If a change
// moves the cluster to another set, the results for the states before and after the change differ.
func (r *Resolver) Namespaces(cluster *clusterv1.ManagedCluster) []string {
	names, err := r.SetsOf(cluster)
	if err != nil {
		utilruntime.HandleError(err)
	}
	return r.NamespacesOf(names...)
}

func (r *Resolver) bindingsOf(set string) []*clusterv1beta2.ManagedClusterSetBinding {
	return reconcile.Indexed[*clusterv1beta2.ManagedClusterSetBinding](r.bindings.Informer().GetIndexer(), bySet, set)
}

// Feeds returns the feeds of changes that may change the clusters of namespaces. Their keys are namespaces without names.
func (r *Resolver) Feeds() []reconcile.Feed {
	return []reconcile.Feed{
		{
			Informer: r.clusters.Informer(),
			Keys: reconcile.Keys(func(cluster *clusterv1.ManagedCluster) []cache.ObjectName {
				// The change also affects the namespace of the cluster.
				return keysOf(append(r.Namespaces(cluster), cluster.Name))
			}),
			Ignore: reconcile.Same(SameLabels),
		},
		{
			Informer: r.sets.Informer(),
			Keys: reconcile.Keys(func(set *clusterv1beta2.ManagedClusterSet) []cache.ObjectName {
				return keysOf(r.NamespacesOf(set.Name))
			}),
			Ignore: reconcile.Same(func(a, b *clusterv1beta2.ManagedClusterSet) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) }),
		},
		{
			Informer: r.bindings.Informer(),
			Keys: reconcile.Keys(func(binding *clusterv1beta2.ManagedClusterSetBinding) []cache.ObjectName {
				return keysOf([]string{binding.Namespace})
			}),
		},
	}
}

// keysOf returns the keys of namespaces.
func keysOf(namespaces []string) []cache.ObjectName {
	keys := make([]cache.ObjectName, 0, len(namespaces))
	for _, namespace := range namespaces {
		keys = append(keys, cache.NewObjectName(namespace, ""))
	}
	return keys
}
