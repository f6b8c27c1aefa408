// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.proxy.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=proxy.open-cluster-management.io

// Package v1alpha1 is the version of the group proxy.open-cluster-management.io that contains
// ManagedServiceAccounts. It is served only if --runtime-config enables it.
package v1alpha1
