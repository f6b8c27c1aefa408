package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ClusterSetLabel is set on a ManagedCluster. Its value is the name of the ManagedClusterSet of selector
	// type ExclusiveClusterSetLabel that contains the cluster.
	ClusterSetLabel = "cluster.open-cluster-management.io/clusterset"

	// DefaultClusterSet contains the clusters without another set.
	DefaultClusterSet = "default"
	// GlobalClusterSet contains all clusters.
	GlobalClusterSet = "global"
)

// MaxManagedNamespaces bounds the namespaces of a ManagedClusterSet.
const MaxManagedNamespaces = 100

const (
	// ConditionClusterSetEmpty is True while a ManagedClusterSet contains no clusters.
	ConditionClusterSetEmpty = "ClusterSetEmpty"
	// ReasonClustersSelected and ReasonNoClusterMatched are its reasons.
	ReasonClustersSelected = "ClustersSelected"
	ReasonNoClusterMatched = "NoClusterMatched"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSet is a set of managed clusters. A ManagedClusterSetBinding makes the clusters available in a
// namespace, and requires permission to create managedclustersets/bind for the set. Moving a cluster into or
// out of a set requires permission to create managedclustersets/join for the set.
type ManagedClusterSet struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects the clusters of the set.
	// +optional
	Spec ManagedClusterSetSpec `json:"spec,omitempty"`

	// status is the observed state of the set. It is read-only.
	// +optional
	Status ManagedClusterSetStatus `json:"status,omitempty"`
}

// ManagedClusterSetSpec selects the clusters of a set.
type ManagedClusterSetSpec struct {
	// clusterSelector selects the clusters.
	// +optional
	ClusterSelector ManagedClusterSelector `json:"clusterSelector,omitempty"`

	// managedNamespaces lists at most 100 namespaces that the agent creates and labels on each cluster of the
	// set. If a namespace is removed from the list, it stays on the clusters and only its label changes.
	// +optional
	// +listType=map
	// +listMapKey=name
	ManagedNamespaces []ManagedNamespaceConfig `json:"managedNamespaces,omitzero"`
}

// ManagedNamespaceConfig is a namespace on the clusters of a set.
type ManagedNamespaceConfig struct {
	// name is the name of the namespace. It must be a DNS label.
	Name string `json:"name"`
}

// ManagedClusterSelector selects the clusters of a set.
type ManagedClusterSelector struct {
	// selectorType is ExclusiveClusterSetLabel or LabelSelector. ExclusiveClusterSetLabel selects the clusters
	// with the name of the set in the label cluster.open-cluster-management.io/clusterset. LabelSelector selects
	// the clusters that labelSelector matches. It is immutable. Defaults to ExclusiveClusterSetLabel.
	// +optional
	// +default="ExclusiveClusterSetLabel"
	SelectorType SelectorType `json:"selectorType,omitempty"`

	// labelSelector selects clusters by labels. An empty selector selects all clusters. It is required if
	// selectorType is LabelSelector, and must be absent or empty otherwise.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// SelectorType specifies how clusters are selected.
// +enum
type SelectorType string

const (
	// ExclusiveClusterSetLabel selects clusters by the label that names their set.
	ExclusiveClusterSetLabel SelectorType = "ExclusiveClusterSetLabel"
	// LabelSelector selects clusters by any labels.
	LabelSelector SelectorType = "LabelSelector"
)

// ManagedClusterSetStatus is the observed state of a ManagedClusterSet.
type ManagedClusterSetStatus struct {
	// conditions report the state of the set. The known type is ClusterSetEmpty.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}
