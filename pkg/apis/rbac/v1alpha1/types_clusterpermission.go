package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a ClusterPermission.
const (
	// ConditionRBACManifestWorkCreated is True once the ManifestWork that carries
	// the rendered objects is stored on the hub.
	ConditionRBACManifestWorkCreated = "RBACManifestWorkCreated"
	// ConditionAppliedRBACManifestWork mirrors the Applied condition of that ManifestWork.
	ConditionAppliedRBACManifestWork = "AppliedRBACManifestWork"
	// ConditionValidation is False when the object cannot be delivered at all.
	ConditionValidation = "Validation"
	// ConditionSubjectPresent is False while a subject that a binding names does not exist.
	ConditionSubjectPresent = "SubjectPresent"
	// ConditionFullyDelivered is False while a part of the spec is not delivered
	// to the managed cluster; its message names each such part.
	ConditionFullyDelivered = "FullyDelivered"
	// ConditionNamespacesSelected tells how many namespaces of the managed cluster
	// the namespaceSelectors of the spec match: False if one of them matches none,
	// Unknown while the namespaces are not known. Only where there are selectors.
	ConditionNamespacesSelected = "NamespacesSelected"
	// ConditionRoleRefsPresent is False while a role of the hub that the spec refers
	// to does not exist. Only where there are such references.
	ConditionRoleRefsPresent = "RoleRefsPresent"
	// ConditionApproved is False while the present spec waits for someone to approve
	// what its author may not grant. Only where approval was needed.
	ConditionApproved = "Approved"
	// ConditionResourceApplied is the condition type of each entry of status.resourceStatus.
	ConditionResourceApplied = "Applied"
)

// DeliveredAnnotation is on each ManifestWork that the server renders from a
// ClusterPermission, with its name. Unlike the owner reference it stays when the
// ClusterPermission is deleted without its dependents.
const DeliveredAnnotation = "rbac.open-cluster-management.io/clusterpermission"

// +genclient
// +genclient:method=UpdateApproval,verb=update,subresource=approval,input=open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1.ClusterPermission,result=open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1.ClusterPermission
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterPermission grants permissions on one managed cluster. It lives in the
// hub namespace that is named after the managed cluster; the server renders its
// roles and bindings into one ManifestWork in the same namespace, and the agent
// of the managed cluster applies them there. Deleting the ClusterPermission
// removes them again.
type ClusterPermission struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The roles and bindings to deliver to the managed cluster.
	Spec ClusterPermissionSpec `json:"spec"`

	// What of the spec has reached the managed cluster. Written by the server.
	// +optional
	Status ClusterPermissionStatus `json:"status,omitempty"`
}

// ClusterPermissionSpec lists the roles and bindings of a ClusterPermission. At
// least one binding or one reference to a role of the hub is required. Objects
// without a name of their own are named after the ClusterPermission.
type ClusterPermissionSpec struct {
	// Whether to verify, on the managed cluster, that the roles which bindings
	// refer to exist there. The result is reported in the conditions
	// ValidateRolesExist and ValidateClusterRolesExist. Defaults to false.
	// +optional
	Validate *bool `json:"validate,omitempty"`

	// A ClusterRole, named after the ClusterPermission, to create on the managed cluster.
	// +optional
	ClusterRole *ClusterRole `json:"clusterRole,omitempty"`

	// A ClusterRoleBinding to create on the managed cluster. It is delivered in
	// addition to clusterRoleBindings.
	// +optional
	ClusterRoleBinding *ClusterRoleBinding `json:"clusterRoleBinding,omitempty"`

	// ClusterRoleBindings to create on the managed cluster. Those that would end
	// up with the same name are refused.
	// +optional
	// +listType=atomic
	ClusterRoleBindings *[]ClusterRoleBinding `json:"clusterRoleBindings,omitempty"`

	// Roles, named after the ClusterPermission, to create in namespaces of the managed cluster.
	// +optional
	// +listType=atomic
	Roles *[]Role `json:"roles,omitempty"`

	// RoleBindings to create in namespaces of the managed cluster. Those that
	// would end up with the same namespace and name are refused.
	// +optional
	// +listType=atomic
	RoleBindings *[]RoleBinding `json:"roleBindings,omitempty"`

	// Roles and ClusterRoles of the hub which are delivered, under their own
	// names and with their rules, to the managed cluster.
	// +optional
	// +listType=atomic
	RoleRefs *[]HubRoleRef `json:"roleRefs,omitempty"`
}

// ClusterRole is a ClusterRole to create on the managed cluster.
type ClusterRole struct {
	// The policy rules of the ClusterRole.
	// +listType=atomic
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// ClusterRoleBinding is a ClusterRoleBinding to create on the managed cluster.
type ClusterRoleBinding struct {
	// Name of the ClusterRoleBinding on the managed cluster. Defaults to the name of the ClusterPermission.
	// +optional
	Name string `json:"name,omitempty"`

	// The ClusterRole to bind, which may exist on the managed cluster already.
	// Defaults to the ClusterRole that the ClusterPermission itself delivers.
	// +optional
	RoleRef *rbacv1.RoleRef `json:"roleRef,omitempty"`

	// The one subject to bind the role to. Give either subject or subjects; a
	// subject that is not also one of the given subjects is refused.
	// +optional
	Subject *rbacv1.Subject `json:"subject,omitempty"`

	// The subjects to bind the role to. A subject of kind ManagedServiceAccount
	// and apiGroup authentication.open-cluster-management.io stands for the
	// ServiceAccount that the account has on the managed cluster.
	// +optional
	// +listType=atomic
	Subjects []rbacv1.Subject `json:"subjects,omitzero"`
}

// Role is a Role to create in one or several namespaces of the managed cluster.
type Role struct {
	// The namespace of the managed cluster to create the Role in. Give either namespace or namespaceSelector.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Selects the namespaces to create the Role in by their labels. Give either namespace or namespaceSelector.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// The policy rules of the Role.
	// +listType=atomic
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// RoleBinding is a RoleBinding to create in one or several namespaces of the managed cluster.
type RoleBinding struct {
	// Name of the RoleBinding on the managed cluster. Defaults to the name of the ClusterPermission.
	// +optional
	Name string `json:"name,omitempty"`

	// The namespace of the managed cluster to create the RoleBinding in. Give either namespace or namespaceSelector.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Selects the namespaces to create the RoleBinding in by their labels. Give either namespace or namespaceSelector.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// The Role or ClusterRole to bind.
	RoleRef RoleRef `json:"roleRef"`

	// The one subject to bind the role to. Give either subject or subjects; a
	// subject that is not also one of the given subjects is refused.
	// +optional
	Subject *rbacv1.Subject `json:"subject,omitempty"`

	// The subjects to bind the role to. A subject of kind ManagedServiceAccount
	// and apiGroup authentication.open-cluster-management.io stands for the
	// ServiceAccount that the account has on the managed cluster.
	// +optional
	// +listType=atomic
	Subjects []rbacv1.Subject `json:"subjects,omitzero"`
}

// RoleRef names the role that a RoleBinding binds. Give apiGroup and name
// together to bind a role that exists on the managed cluster; leave both out to
// bind the role that the ClusterPermission itself delivers.
type RoleRef struct {
	// API group of the role: rbac.authorization.k8s.io.
	// +optional
	APIGroup *string `json:"apiGroup,omitempty"`

	// Role or ClusterRole.
	Kind string `json:"kind"`

	// Name of the role.
	// +optional
	Name *string `json:"name,omitempty"`
}

// HubRoleRef names a Role or ClusterRole of the hub.
type HubRoleRef struct {
	// API group of the role: rbac.authorization.k8s.io, which is also the default.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`

	// Role or ClusterRole.
	Kind string `json:"kind"`

	// Name of the role.
	Name string `json:"name"`

	// Namespace of the Role, on the hub and on the managed cluster; empty for a ClusterRole.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ClusterPermissionStatus reports what of a ClusterPermission has reached the managed cluster.
type ClusterPermissionStatus struct {
	// The state of the delivery. Known types are RBACManifestWorkCreated,
	// AppliedRBACManifestWork, Validation, SubjectPresent, FullyDelivered,
	// NamespacesSelected, RoleRefsPresent, Approved, ValidateRolesExist and
	// ValidateClusterRolesExist.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// The state of each delivered object on the managed cluster.
	// +optional
	ResourceStatus *ResourceStatus `json:"resourceStatus,omitempty"`

	// What waits for approval and what was approved. Nobody but the server writes
	// it: when the spec changes, and by the subresource approval.
	// +optional
	Approval *Approval `json:"approval,omitempty"`
}

// Approval says what of a ClusterPermission waits for someone who may grant it,
// and what was approved. A server that checks with
// --clusterpermission-escalation-check=Approve makes specs wait whose author may
// not grant what they grant.
type Approval struct {
	// The generation that waits. It is not delivered.
	// +optional
	Pending *PendingGeneration `json:"pending,omitempty"`

	// The last generation that was approved.
	// +optional
	Approved *ApprovedGeneration `json:"approved,omitempty"`

	// What is delivered while a generation waits; absent if nothing is.
	// +optional
	Delivered *DeliveredGeneration `json:"delivered,omitempty"`
}

// PendingGeneration is a generation of the spec that waits for approval.
type PendingGeneration struct {
	// The generation that waits.
	Generation int64 `json:"generation"`

	// Name of the user who wrote it.
	RequestedBy string `json:"requestedBy"`

	// When it was written.
	RequestedAt metav1.Time `json:"requestedAt"`
}

// ApprovedGeneration is a generation of the spec that someone has approved.
type ApprovedGeneration struct {
	// The generation that was approved.
	Generation int64 `json:"generation"`

	// Name of the user who approved it.
	ApprovedBy string `json:"approvedBy"`

	// When it was approved.
	ApprovedAt metav1.Time `json:"approvedAt"`
}

// DeliveredGeneration is a former generation of the spec that stays delivered.
type DeliveredGeneration struct {
	// The generation that is delivered.
	Generation int64 `json:"generation"`

	// The spec of that generation.
	Spec ClusterPermissionSpec `json:"spec"`
}

// ResourceStatus holds the state of each delivered object, by kind.
type ResourceStatus struct {
	// The delivered ClusterRoles.
	// +optional
	// +listType=atomic
	ClusterRoles []ClusterScopedResourceStatus `json:"clusterRoles,omitempty"`

	// The delivered ClusterRoleBindings.
	// +optional
	// +listType=atomic
	ClusterRoleBindings []ClusterScopedResourceStatus `json:"clusterRoleBindings,omitempty"`

	// The delivered Roles.
	// +optional
	// +listType=atomic
	Roles []NamespacedResourceStatus `json:"roles,omitempty"`

	// The delivered RoleBindings.
	// +optional
	// +listType=atomic
	RoleBindings []NamespacedResourceStatus `json:"roleBindings,omitempty"`
}

// ClusterScopedResourceStatus is the state of one ClusterRole or ClusterRoleBinding.
type ClusterScopedResourceStatus struct {
	// Name of the object on the managed cluster.
	Name string `json:"name"`

	// Conditions of the object; the type is Applied.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"condition,omitempty"`
}

// NamespacedResourceStatus is the state of one Role or RoleBinding.
type NamespacedResourceStatus struct {
	// Name of the object on the managed cluster.
	Name string `json:"name"`

	// Namespace of the object on the managed cluster.
	Namespace string `json:"namespace"`

	// Conditions of the object; the type is Applied.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"condition,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterPermissionList is a list of ClusterPermissions.
type ClusterPermissionList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ClusterPermissions.
	Items []ClusterPermission `json:"items"`
}
