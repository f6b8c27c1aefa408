package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSet is a set of managed clusters.
type ManagedClusterSet struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   ManagedClusterSetSpec
	Status ManagedClusterSetStatus
}

// ManagedClusterSetSpec selects the clusters of a set.
type ManagedClusterSetSpec struct {
	ClusterSelector ManagedClusterSelector

	ManagedNamespaces []ManagedNamespaceConfig
}

// ManagedNamespaceConfig is a namespace on the clusters of a set.
type ManagedNamespaceConfig struct {
	Name string
}

// ManagedClusterSelector selects the clusters of a set.
type ManagedClusterSelector struct {
	SelectorType  SelectorType
	LabelSelector *metav1.LabelSelector
}

// SelectorType specifies how clusters are selected.
type SelectorType string

// Selector types of a ManagedClusterSet.
const (
	ExclusiveClusterSetLabel SelectorType = "ExclusiveClusterSetLabel"
	LabelSelector            SelectorType = "LabelSelector"
)

// ManagedClusterSetStatus is the observed state of a ManagedClusterSet.
type ManagedClusterSetStatus struct {
	Conditions []metav1.Condition
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetList is a list of ManagedClusterSets.
type ManagedClusterSetList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []ManagedClusterSet
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetBinding binds a ManagedClusterSet to its namespace.
type ManagedClusterSetBinding struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   ManagedClusterSetBindingSpec
	Status ManagedClusterSetBindingStatus
}

// ManagedClusterSetBindingSpec identifies the bound set.
type ManagedClusterSetBindingSpec struct {
	ClusterSet string
}

// ManagedClusterSetBindingStatus is the observed state of a ManagedClusterSetBinding.
type ManagedClusterSetBindingStatus struct {
	Conditions []metav1.Condition
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetBindingList is a list of ManagedClusterSetBindings.
type ManagedClusterSetBindingList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []ManagedClusterSetBinding
}
