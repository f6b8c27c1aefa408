// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.register.v1alpha1
// +k8s:deepcopy-gen=package
// +groupName=register.open-cluster-management.io

// Package v1alpha1 is the version of the group register.open-cluster-management.io: the identity of each
// managed cluster, how it authenticates to the hub, and whether the hub accepts it. The types have no internal
// form, since only the server writes the stored objects.
package v1alpha1
