// +k8s:deepcopy-gen=package
// +internal:v1alpha1=ManagedServiceAccountBinding
// +internal:v1beta1=ManagedServiceAccount

// Package authentication contains the internal types of the group authentication.open-cluster-management.io, which the
// server uses regardless of the version of a request. They have the fields of one version.
package authentication
