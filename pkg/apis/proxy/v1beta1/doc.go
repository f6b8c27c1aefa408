// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.proxy.v1beta1
// +k8s:deepcopy-gen=package
// +groupName=proxy.open-cluster-management.io

// Package v1beta1 is the version of the group proxy.open-cluster-management.io to which upstream search
// collectors report the resources of their cluster.
package v1beta1
