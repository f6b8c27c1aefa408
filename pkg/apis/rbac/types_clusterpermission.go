package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterPermission grants permissions on one managed cluster.
type ClusterPermission struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   ClusterPermissionSpec
	Status ClusterPermissionStatus
}

// ClusterPermissionSpec lists the roles and bindings of a ClusterPermission.
type ClusterPermissionSpec struct {
	Validate            *bool
	ClusterRole         *ClusterRole
	ClusterRoleBinding  *ClusterRoleBinding
	ClusterRoleBindings *[]ClusterRoleBinding
	Roles               *[]Role
	RoleBindings        *[]RoleBinding
	RoleRefs            *[]HubRoleRef
}

// ClusterRole describes a ClusterRole to create on the managed cluster.
type ClusterRole struct {
	Rules []rbacv1.PolicyRule
}

// ClusterRoleBinding describes a ClusterRoleBinding to create on the managed cluster.
type ClusterRoleBinding struct {
	Name     string
	RoleRef  *rbacv1.RoleRef
	Subject  *rbacv1.Subject
	Subjects []rbacv1.Subject
}

// Role describes a Role to create in one or more namespaces of the managed cluster.
type Role struct {
	Namespace         string
	NamespaceSelector *metav1.LabelSelector
	Rules             []rbacv1.PolicyRule
}

// RoleBinding describes a RoleBinding to create in one or more namespaces of the managed cluster.
type RoleBinding struct {
	Name              string
	Namespace         string
	NamespaceSelector *metav1.LabelSelector
	RoleRef           RoleRef
	Subject           *rbacv1.Subject
	Subjects          []rbacv1.Subject
}

// RoleRef refers to the role that a RoleBinding binds.
type RoleRef struct {
	APIGroup *string
	Kind     string
	Name     *string
}

// HubRoleRef refers to a Role or ClusterRole of the hub.
type HubRoleRef struct {
	APIGroup  string
	Kind      string
	Name      string
	Namespace string
}

// ClusterPermissionStatus reports the delivery of a ClusterPermission to the managed cluster.
type ClusterPermissionStatus struct {
	Conditions     []metav1.Condition
	ResourceStatus *ResourceStatus
	Approval       *Approval
}

// Approval reports the approval of a ClusterPermission.
type Approval struct {
	Pending   *PendingGeneration
	Approved  *ApprovedGeneration
	Delivered *DeliveredGeneration
}

// PendingGeneration is a generation of the spec that waits for approval.
type PendingGeneration struct {
	Generation  int64
	RequestedBy string
	RequestedAt metav1.Time
}

// ApprovedGeneration is a generation of the spec that was approved.
type ApprovedGeneration struct {
	Generation int64
	ApprovedBy string
	ApprovedAt metav1.Time
}

// DeliveredGeneration is a previous generation of the spec that stays delivered.
type DeliveredGeneration struct {
	Generation int64
	Spec       ClusterPermissionSpec
}

// ResourceStatus reports the state of the delivered objects by kind.
type ResourceStatus struct {
	ClusterRoles        []ClusterScopedResourceStatus
	ClusterRoleBindings []ClusterScopedResourceStatus
	Roles               []NamespacedResourceStatus
	RoleBindings        []NamespacedResourceStatus
}

// ClusterScopedResourceStatus reports the state of one ClusterRole or ClusterRoleBinding.
type ClusterScopedResourceStatus struct {
	Name       string
	Conditions []metav1.Condition
}

// NamespacedResourceStatus reports the state of one Role or RoleBinding.
type NamespacedResourceStatus struct {
	Name       string
	Namespace  string
	Conditions []metav1.Condition
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterPermissionList is a list of ClusterPermissions.
type ClusterPermissionList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []ClusterPermission
}
