// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.search.v1alpha1
// +k8s:deepcopy-gen=package
// +groupName=search.open-cluster-management.io

// Package v1alpha1 is the version of the group search.open-cluster-management.io, searches of the resources of
// the hub and its managed clusters. The types have no internal form, since none is stored.
package v1alpha1
