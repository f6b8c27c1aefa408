package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=get,list,watch
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSet is a ManagedClusterSet of the group cluster.open-cluster-management.io that the caller may get. It is
// read-only, and has the metadata of that object.
type ManagedClusterSet struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the spec of the ManagedClusterSet.
	Spec clusterv1beta2.ManagedClusterSetSpec `json:"spec"`

	// status is the status of the ManagedClusterSet.
	// +optional
	Status clusterv1beta2.ManagedClusterSetStatus `json:"status,omitempty"`
}
