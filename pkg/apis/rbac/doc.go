// +k8s:deepcopy-gen=package

// Package rbac contains the internal types of the group rbac.open-cluster-management.io, which the server uses
// regardless of the version of a request. They have the fields of one version.
package rbac
