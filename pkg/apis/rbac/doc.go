// +k8s:deepcopy-gen=package
// +groupName=rbac.open-cluster-management.io

// Package rbac contains the internal types of the group rbac.open-cluster-management.io, which the server
// uses regardless of the version of a request.
package rbac
