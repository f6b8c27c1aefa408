// +k8s:deepcopy-gen=package
// +groupName=authentication.open-cluster-management.io

// Package authentication contains the internal types of the group authentication.open-cluster-management.io,
// which the server uses regardless of the version of a request. The group proxy.open-cluster-management.io
// uses the same types.
package authentication
