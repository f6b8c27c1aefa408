// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.open-cluster-management.addon.v1beta1
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=open-cluster-management.io/hub-apiserver/pkg/apis/addon
// +k8s:conversion-gen=open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1
// +k8s:defaulter-gen=TypeMeta
// +groupName=addon.open-cluster-management.io

// Package v1beta1 is the preferred version of the group addon.open-cluster-management.io, the add-ons of managed
// clusters.
package v1beta1
