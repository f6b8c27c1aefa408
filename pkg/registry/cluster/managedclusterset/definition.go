// Package managedclusterset serves ManagedClusterSets.
package managedclusterset

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster/validation"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Definition returns the row of ManagedClusterSets.
func Definition() definition.Resource {
	return definition.Resource{
		Name: "managedclustersets", Singular: "managedclusterset", Kind: "ManagedClusterSet",
		ShortNames: []string{"mclset", "mclsets"}, Categories: []string{"ocm"},
		ClusterScoped: true,
		Versions:      []schema.GroupVersion{clusterv1beta2.SchemeGroupVersion},
		Strategy: &definition.Strategy[*cluster.ManagedClusterSet]{
			Rules: validation.ManagedClusterSet,
		},
		Columns: definition.Columns[*cluster.ManagedClusterSet]{
			{Name: "Empty", Description: "Whether the set has no clusters.", Condition: clusterv1beta2.ConditionClusterSetEmpty},
			{Name: "Selector", Description: "Label selector of the clusters of the set.", Wide: true, Value: selector},
		},
	}
}

// selector returns the label selector of the clusters of a set.
func selector(s *cluster.ManagedClusterSet) any {
	if s.Spec.ClusterSelector.SelectorType == clusterv1beta2.LabelSelector {
		return metav1.FormatLabelSelector(s.Spec.ClusterSelector.LabelSelector)
	}
	return clusterv1beta2.ClusterSetLabel + "=" + s.Name
}
