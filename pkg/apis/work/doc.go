// +k8s:deepcopy-gen=package
// +internal:v1=ManifestWork

// Package work contains the internal types of the group work.open-cluster-management.io, which the server uses
// regardless of the version of a request. They have the fields of one version.
package work
