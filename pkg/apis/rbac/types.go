package rbac

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterPermission is the internal form of a v1alpha1.ClusterPermission.
type ClusterPermission v1alpha1.ClusterPermission

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterPermissionList is a list of ClusterPermissions.
type ClusterPermissionList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ClusterPermission
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterNamespace is the internal form of a v1alpha1.ClusterNamespace.
type ClusterNamespace v1alpha1.ClusterNamespace

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterNamespaceList is a list of ClusterNamespaces.
type ClusterNamespaceList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []ClusterNamespace
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MulticlusterRoleAssignment is the internal form of a v1beta1.MulticlusterRoleAssignment.
type MulticlusterRoleAssignment v1beta1.MulticlusterRoleAssignment

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MulticlusterRoleAssignmentList is a list of MulticlusterRoleAssignments.
type MulticlusterRoleAssignmentList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []MulticlusterRoleAssignment
}
