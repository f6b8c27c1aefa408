// +k8s:deepcopy-gen=package
// +groupName=addon.open-cluster-management.io

// Package addon contains the internal types of the group addon.open-cluster-management.io, which the server
// uses regardless of the version of a request. They follow v1alpha1, since v1beta1 lacks some of its fields.
package addon
