package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=get,list,watch
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedCluster is a ManagedCluster of the group cluster.open-cluster-management.io that the caller may get. It is
// read-only, and has the metadata of that object.
type ManagedCluster struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the spec of the ManagedCluster.
	Spec clusterv1.ManagedClusterSpec `json:"spec"`

	// status is the status of the ManagedCluster.
	// +optional
	Status clusterv1.ManagedClusterStatus `json:"status,omitempty"`
}
