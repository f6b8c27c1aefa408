// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.cluster.v1
// +k8s:deepcopy-gen=package
// +k8s:defaulter-gen=TypeMeta
// +groupName=cluster.open-cluster-management.io

// Package v1 is the version of ManagedClusters in the group cluster.open-cluster-management.io.
package v1
