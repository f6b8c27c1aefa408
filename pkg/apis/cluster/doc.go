// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package cluster contains the internal types of the group cluster.open-cluster-management.io, which the server
// uses regardless of the version of a request.
package cluster
