// +k8s:deepcopy-gen=package
// +groupName=rbac.open-cluster-management.io

// Package rbac holds the internal types of the group rbac.open-cluster-management.io, the form in which
// the server works with its objects whatever version a client speaks.
package rbac
