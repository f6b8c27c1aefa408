// +k8s:deepcopy-gen=package
// +internal:v1alpha1=ClusterNamespace,ClusterPermission
// +internal:v1beta1=MulticlusterRoleAssignment

// Package rbac contains the internal types of the group rbac.open-cluster-management.io, which the server uses
// regardless of the version of a request. They have the fields of one version.
package rbac
