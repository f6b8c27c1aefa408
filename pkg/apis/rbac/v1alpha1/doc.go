// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.rbac.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=rbac.open-cluster-management.io

// Package v1alpha1 is the version of the group rbac.open-cluster-management.io, the permissions that a hub
// delivers to its managed clusters.
package v1alpha1
