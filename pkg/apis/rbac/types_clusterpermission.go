package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterPermission grants permissions on one managed cluster. It lives in the
// hub namespace that is named after the managed cluster; the server renders its
// roles and bindings into one ManifestWork in the same namespace, and the agent
// of the managed cluster applies them there. Deleting the ClusterPermission
// removes them again.
type ClusterPermission struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   ClusterPermissionSpec
	Status ClusterPermissionStatus
}

// ClusterPermissionSpec lists the roles and bindings of a ClusterPermission. At
// least one binding or one reference to a role of the hub is required. Objects
// without a name of their own are named after the ClusterPermission.
type ClusterPermissionSpec struct {
	Validate            *bool
	ClusterRole         *ClusterRole
	ClusterRoleBinding  *ClusterRoleBinding
	ClusterRoleBindings *[]ClusterRoleBinding
	Roles               *[]Role
	RoleBindings        *[]RoleBinding
	RoleRefs            *[]HubRoleRef
}

// ClusterRole is a ClusterRole to create on the managed cluster.
type ClusterRole struct {
	Rules []rbacv1.PolicyRule
}

// ClusterRoleBinding is a ClusterRoleBinding to create on the managed cluster.
type ClusterRoleBinding struct {
	Name     string
	RoleRef  *rbacv1.RoleRef
	Subject  *rbacv1.Subject
	Subjects []rbacv1.Subject
}

// Role is a Role to create in one or several namespaces of the managed cluster.
type Role struct {
	Namespace         string
	NamespaceSelector *metav1.LabelSelector
	Rules             []rbacv1.PolicyRule
}

// RoleBinding is a RoleBinding to create in one or several namespaces of the managed cluster.
type RoleBinding struct {
	Name              string
	Namespace         string
	NamespaceSelector *metav1.LabelSelector
	RoleRef           RoleRef
	Subject           *rbacv1.Subject
	Subjects          []rbacv1.Subject
}

// RoleRef names the role that a RoleBinding binds. Give apiGroup and name
// together to bind a role that exists on the managed cluster; leave both out to
// bind the role that the ClusterPermission itself delivers.
type RoleRef struct {
	APIGroup *string
	Kind     string
	Name     *string
}

// HubRoleRef names a Role or ClusterRole of the hub.
type HubRoleRef struct {
	APIGroup  string
	Kind      string
	Name      string
	Namespace string
}

// ClusterPermissionStatus reports what of a ClusterPermission has reached the managed cluster.
type ClusterPermissionStatus struct {
	Conditions     []metav1.Condition
	ResourceStatus *ResourceStatus
	Approval       *Approval
}

// Approval says what of a ClusterPermission waits for someone who may grant it,
// and what was approved.
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

// ApprovedGeneration is a generation of the spec that someone has approved.
type ApprovedGeneration struct {
	Generation int64
	ApprovedBy string
	ApprovedAt metav1.Time
}

// DeliveredGeneration is a former generation of the spec that stays delivered.
type DeliveredGeneration struct {
	Generation int64
	Spec       ClusterPermissionSpec
}

// ResourceStatus holds the state of each delivered object, by kind.
type ResourceStatus struct {
	ClusterRoles        []ClusterScopedResourceStatus
	ClusterRoleBindings []ClusterScopedResourceStatus
	Roles               []NamespacedResourceStatus
	RoleBindings        []NamespacedResourceStatus
}

// ClusterScopedResourceStatus is the state of one ClusterRole or ClusterRoleBinding.
type ClusterScopedResourceStatus struct {
	Name       string
	Conditions []metav1.Condition
}

// NamespacedResourceStatus is the state of one Role or RoleBinding.
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
