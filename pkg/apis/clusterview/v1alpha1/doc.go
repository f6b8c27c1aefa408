// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.clusterview.v1alpha1
// +k8s:deepcopy-gen=package
// +groupName=clusterview.open-cluster-management.io

// Package v1alpha1 is the version v1alpha1 of the group clusterview.open-cluster-management.io: the ManagedClusterSets that
// the caller may get. The types have no internal form, since none is stored.
package v1alpha1
