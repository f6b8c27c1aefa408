// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.rbac.v1beta1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=rbac.open-cluster-management.io

// Package v1beta1 is the version of the group rbac.open-cluster-management.io that contains the permissions
// granted on many managed clusters at once.
package v1beta1
