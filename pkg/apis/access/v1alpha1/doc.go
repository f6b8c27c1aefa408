// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.access.v1alpha1
// +k8s:deepcopy-gen=package
// +groupName=access.open-cluster-management.io

// Package v1alpha1 is the version of the group access.open-cluster-management.io, reviews of the permissions on
// the clusters of the fleet. The types have no internal form, since none is stored.
package v1alpha1
