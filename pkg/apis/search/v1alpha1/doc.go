// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.search.v1alpha1
// +k8s:deepcopy-gen=package
// +groupName=search.open-cluster-management.io

// Package v1alpha1 is the version of the group search.open-cluster-management.io:
// searches over the resources of the hub and its managed clusters. Nothing of it is
// stored as an object, so it has no internal form of its own.
package v1alpha1
