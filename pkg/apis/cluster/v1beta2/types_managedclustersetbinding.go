package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ConditionBound is True while the ManagedClusterSet of a binding exists.
	ConditionBound = "Bound"
	// ReasonClusterSetBound and ReasonClusterSetNotFound are its reasons.
	ReasonClusterSetBound    = "ClusterSetBound"
	ReasonClusterSetNotFound = "ClusterSetNotFound"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetBinding binds a ManagedClusterSet to its namespace. It has the name of the set. Creating it
// requires permission to create managedclustersets/bind for the set.
type ManagedClusterSetBinding struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec identifies the set.
	Spec ManagedClusterSetBindingSpec `json:"spec"`

	// status is the observed state of the binding. It is read-only.
	// +optional
	Status ManagedClusterSetBindingStatus `json:"status,omitempty"`
}

// ManagedClusterSetBindingSpec identifies the bound set.
type ManagedClusterSetBindingSpec struct {
	// clusterSet is the name of the ManagedClusterSet. It must be equal to the name of the binding.
	ClusterSet string `json:"clusterSet"`
}

// ManagedClusterSetBindingStatus is the observed state of a ManagedClusterSetBinding.
type ManagedClusterSetBindingStatus struct {
	// conditions report the state of the binding. The known type is Bound.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}
