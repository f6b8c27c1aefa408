// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.migration.v1alpha1
// +k8s:deepcopy-gen=package
// +groupName=migration.open-cluster-management.io

// Package v1alpha1 is the version of the group migration.open-cluster-management.io, by which objects move to the
// server from CustomResourceDefinitions of the hub. The types have no internal form, since none is stored.
package v1alpha1
