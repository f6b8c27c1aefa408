// +k8s:deepcopy-gen=package
// +internal:v1=ManagedCluster
// +internal:v1beta2=ManagedClusterSet,ManagedClusterSetBinding

// Package cluster contains the internal types of the group cluster.open-cluster-management.io, which the server uses
// regardless of the version of a request. They have the fields of one version.
package cluster
