// +k8s:deepcopy-gen=package
// +groupName=addon.open-cluster-management.io

// Package addon holds the internal types of the group addon.open-cluster-management.io, the form in
// which the server works with its objects whatever version a client speaks. It is that of the
// version v1alpha1, which can say more than v1beta1.
package addon
