// Package managedclusterset finds the clusters of ManagedClusterSets, and the namespaces that may
// use the sets. Its controllers write the status of sets and bindings, and the managed namespaces
// of clusters.
package managedclusterset

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
)

// Selects reports whether a cluster is in a set.
func Selects(set *clusterv1beta2.ManagedClusterSet, cluster *clusterv1.ManagedCluster) (bool, error) {
	if isExclusive(set) {
		return clusterv1beta2.ExclusiveSet(cluster.Labels) == set.Name, nil
	}
	selector, err := selectorOf(set)
	if err != nil {
		return false, err
	}
	return selector.Matches(labels.Set(cluster.Labels)), nil
}

// isExclusive reports whether a cluster can be in only one set of this type.
func isExclusive(set *clusterv1beta2.ManagedClusterSet) bool {
	kind := set.Spec.ClusterSelector.SelectorType
	return kind == clusterv1beta2.ExclusiveClusterSetLabel || kind == ""
}

// selectorOf returns the cluster selector of a set that is not exclusive.
func selectorOf(set *clusterv1beta2.ManagedClusterSet) (labels.Selector, error) {
	if kind := set.Spec.ClusterSelector.SelectorType; kind != clusterv1beta2.LabelSelector {
		return nil, fmt.Errorf("unknown selector type %[2]q of ManagedClusterSet %[1]s", set.Name, kind)
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.ClusterSelector.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("label selector of ManagedClusterSet %s: %w", set.Name, err)
	}
	return selector, nil
}
