// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.authentication.v1beta1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=authentication.open-cluster-management.io

// Package v1beta1 is the preferred and stored version of the group
// authentication.open-cluster-management.io: service accounts on managed clusters.
package v1beta1
