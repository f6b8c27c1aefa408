// +k8s:deepcopy-gen=package
// +groupName=work.open-cluster-management.io

// Package work holds the internal types of the group work.open-cluster-management.io, the form in which
// the server works with its objects whatever version a client speaks.
package work
