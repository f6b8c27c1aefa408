// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.cluster.v1beta2
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=cluster.open-cluster-management.io

// Package v1beta2 is the version of ManagedClusterSets and ManagedClusterSetBindings in the group
// cluster.open-cluster-management.io.
package v1beta2
