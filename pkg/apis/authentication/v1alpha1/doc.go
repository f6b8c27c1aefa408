// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.authentication.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=authentication.open-cluster-management.io

// Package v1alpha1 is the only version of ManagedServiceAccountBindings in the group
// authentication.open-cluster-management.io, and the deprecated version of ManagedServiceAccounts.
package v1alpha1
