// +k8s:deepcopy-gen=package
// +groupName=work.open-cluster-management.io

// Package work contains the internal types of the group work.open-cluster-management.io, which the server
// uses regardless of the version of a request.
package work
