// +k8s:deepcopy-gen=package
// +groupName=authentication.open-cluster-management.io

// Package authentication holds the internal types of the group
// authentication.open-cluster-management.io, the form in which the server works
// with its objects whatever version a client speaks. The group
// proxy.open-cluster-management.io, the spelling of seed 002, shares them.
package authentication
