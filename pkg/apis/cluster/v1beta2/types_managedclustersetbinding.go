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

// ManagedClusterSetBinding binds a ManagedClusterSet to its namespace. Its name
// is that of the set, and creating it takes the permission to create
// managedclustersets/bind for the set.
type ManagedClusterSetBinding struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which set is bound.
	Spec ManagedClusterSetBindingSpec `json:"spec"`

	// The observed state of the binding.
	// +optional
	Status ManagedClusterSetBindingStatus `json:"status,omitempty"`
}

// ManagedClusterSetBindingSpec names the set that is bound.
type ManagedClusterSetBindingSpec struct {
	// Name of the ManagedClusterSet, and of this object.
	ClusterSet string `json:"clusterSet"`
}

// ManagedClusterSetBindingStatus is the observed state of a ManagedClusterSetBinding.
type ManagedClusterSetBindingStatus struct {
	// The state of the binding. The known type is Bound.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetBindingList is a list of ManagedClusterSetBindings.
type ManagedClusterSetBindingList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ManagedClusterSetBindings.
	Items []ManagedClusterSetBinding `json:"items"`
}
