// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.addon.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=addon.open-cluster-management.io

// Package v1alpha1 is the stored version of the group addon.open-cluster-management.io, the add-ons of managed
// clusters.
package v1alpha1
