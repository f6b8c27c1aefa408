// +k8s:deepcopy-gen=package

// Package cluster contains the internal types of the group cluster.open-cluster-management.io, which the server uses
// regardless of the version of a request. They have the fields of one version.
package cluster
