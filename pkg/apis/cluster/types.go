package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedCluster is the internal form of a v1.ManagedCluster.
type ManagedCluster v1.ManagedCluster

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterList is a list of ManagedClusters.
type ManagedClusterList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ManagedCluster
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSet is the internal form of a v1beta2.ManagedClusterSet.
type ManagedClusterSet v1beta2.ManagedClusterSet

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetList is a list of ManagedClusterSets.
type ManagedClusterSetList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ManagedClusterSet
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetBinding is the internal form of a v1beta2.ManagedClusterSetBinding.
type ManagedClusterSetBinding v1beta2.ManagedClusterSetBinding

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ManagedClusterSetBindingList is a list of ManagedClusterSetBindings.
type ManagedClusterSetBindingList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ManagedClusterSetBinding
}
