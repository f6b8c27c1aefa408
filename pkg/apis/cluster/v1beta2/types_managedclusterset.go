package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ClusterSetLabel on a ManagedCluster names the one ManagedClusterSet of
	// selector type ExclusiveClusterSetLabel that the cluster is in.
	ClusterSetLabel = "cluster.open-cluster-management.io/clusterset"

	// DefaultClusterSet has the clusters that nobody put into another set.
	DefaultClusterSet = "default"
	// GlobalClusterSet has all clusters.
	GlobalClusterSet = "global"
)

// MaxManagedNamespaces is how many namespaces a ManagedClusterSet may list.
const MaxManagedNamespaces = 100

const (
	// ConditionClusterSetEmpty is True while a ManagedClusterSet has no clusters.
	ConditionClusterSetEmpty = "ClusterSetEmpty"
	// ReasonClustersSelected and ReasonNoClusterMatched are its reasons.
	ReasonClustersSelected = "ClustersSelected"
	ReasonNoClusterMatched = "NoClusterMatched"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSet is a set of managed clusters. Whoever may create
// managedclustersets/bind for it can bind it to a namespace, whose users can
// then use its clusters together. To move a cluster into a set or out of it
// takes the permission to create managedclustersets/join for that set.
type ManagedClusterSet struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which clusters are in the set.
	// +optional
	Spec ManagedClusterSetSpec `json:"spec,omitempty"`

	// The observed state of the set.
	// +optional
	Status ManagedClusterSetStatus `json:"status,omitempty"`
}

// ManagedClusterSetSpec says which clusters are in a set.
type ManagedClusterSetSpec struct {
	// What selects the clusters.
	// +optional
	ClusterSelector ManagedClusterSelector `json:"clusterSelector,omitempty"`

	// Namespaces that the agent of each cluster of the set creates and labels there, at most 100. A
	// namespace that is removed from this list stays on the clusters; only its label changes.
	// +optional
	// +listType=map
	// +listMapKey=name
	ManagedNamespaces []ManagedNamespaceConfig `json:"managedNamespaces,omitempty"`
}

// ManagedNamespaceConfig is a namespace on the clusters of a set.
type ManagedNamespaceConfig struct {
	// Name of the namespace, a DNS label.
	Name string `json:"name"`
}

// ManagedClusterSelector selects the clusters of a set.
type ManagedClusterSelector struct {
	// ExclusiveClusterSetLabel selects the clusters whose label
	// cluster.open-cluster-management.io/clusterset is the name of the set;
	// LabelSelector those that labelSelector matches. It cannot be changed.
	// +optional
	// +default="ExclusiveClusterSetLabel"
	SelectorType SelectorType `json:"selectorType,omitempty"`

	// Selects clusters by their labels; an empty one selects all. Only with the
	// selector type LabelSelector, which requires it.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// SelectorType is how clusters are selected.
// +enum
type SelectorType string

const (
	// ExclusiveClusterSetLabel selects by the label that names the set.
	ExclusiveClusterSetLabel SelectorType = "ExclusiveClusterSetLabel"
	// LabelSelector selects by any labels.
	LabelSelector SelectorType = "LabelSelector"
)

// ManagedClusterSetStatus is the observed state of a ManagedClusterSet.
type ManagedClusterSetStatus struct {
	// The state of the set. The known type is ClusterSetEmpty.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetList is a list of ManagedClusterSets.
type ManagedClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ManagedClusterSets.
	Items []ManagedClusterSet `json:"items"`
}
