// +k8s:deepcopy-gen=package
// +groupName=cluster.open-cluster-management.io

// Package cluster holds the internal types of the group cluster.open-cluster-management.io, the form in which
// the server works with its objects whatever version a client speaks.
package cluster
