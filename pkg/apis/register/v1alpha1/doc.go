// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.register.v1alpha1
// +k8s:deepcopy-gen=package
// +groupName=register.open-cluster-management.io

// Package v1alpha1 is the served and stored version of the group
// register.open-cluster-management.io: who each managed cluster is, how it shows
// that to the hub, and whether the hub accepts it. The types are their own internal
// form, since the server alone writes what is stored of them.
package v1alpha1
