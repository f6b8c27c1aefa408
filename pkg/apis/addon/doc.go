// +k8s:deepcopy-gen=package
// +internal:v1alpha1=AddOnDeploymentConfig,ClusterManagementAddOn

// Package addon contains the internal types of the group addon.open-cluster-management.io, which the server uses
// regardless of the version of a request. They have the fields of one version:
// v1alpha1, since v1beta1 lacks some of its fields. ManagedClusterAddOn also has what v1alpha1 cannot express.
package addon
