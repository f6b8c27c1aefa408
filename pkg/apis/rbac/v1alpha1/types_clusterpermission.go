package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a ClusterPermission.
const (
	// ConditionRBACManifestWorkCreated is True once the ManifestWork with the rendered objects is stored on the hub.
	ConditionRBACManifestWorkCreated = "RBACManifestWorkCreated"
	// ConditionAppliedRBACManifestWork mirrors the Applied condition of that ManifestWork.
	ConditionAppliedRBACManifestWork = "AppliedRBACManifestWork"
	// ConditionValidation is False while the ClusterPermission cannot be delivered at all.
	ConditionValidation = "Validation"
	// ConditionSubjectPresent is False while a ManagedServiceAccount that a binding refers to has no ServiceAccount.
	ConditionSubjectPresent = "SubjectPresent"
	// ConditionFullyDelivered is False while a part of the spec is not delivered to the managed cluster. The
	// message lists these parts.
	ConditionFullyDelivered = "FullyDelivered"
	// ConditionNamespacesSelected reports the number of namespaces that the namespaceSelectors of the spec
	// match. It is False if a selector matches no namespace, and Unknown until the agent has reported the
	// namespaces. It is set only if the spec contains selectors.
	ConditionNamespacesSelected = "NamespacesSelected"
	// ConditionRoleRefsPresent is False while a role of the hub that the spec refers to does not exist. It is
	// set only if the spec contains roleRefs.
	ConditionRoleRefsPresent = "RoleRefsPresent"
	// ConditionApproved is False while the current spec waits for approval. It is set only if the spec has
	// required approval.
	ConditionApproved = "Approved"
	// ConditionResourceApplied is the condition type of each entry of status.resourceStatus.
	ConditionResourceApplied = "Applied"
)

// DeliveredAnnotation is set on each ManifestWork that the server renders from a ClusterPermission. Its value
// is the name of the ClusterPermission. Unlike the owner reference, it remains if the ClusterPermission is
// deleted with orphan propagation.
const DeliveredAnnotation = "rbac.open-cluster-management.io/clusterpermission"

// +genclient
// +genclient:method=UpdateApproval,verb=update,subresource=approval,input=open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1.ClusterPermission,result=open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1.ClusterPermission
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ClusterPermission grants permissions on one managed cluster. It is created in the namespace of the cluster on
// the hub. The server renders its roles and bindings into one ManifestWork in the same namespace, and the agent
// of the cluster applies them. If the ClusterPermission is deleted, the agent removes them.
type ClusterPermission struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec lists the roles and bindings to deliver to the managed cluster.
	Spec ClusterPermissionSpec `json:"spec"`

	// status reports the delivery to the managed cluster. It is read-only.
	// +optional
	Status ClusterPermissionStatus `json:"status,omitempty"`
}

// ClusterPermissionSpec lists the roles and bindings of a ClusterPermission. At least one binding or reference
// to a role of the hub is required. An object without a name gets the name of the ClusterPermission.
type ClusterPermissionSpec struct {
	// validate specifies whether the agent checks that the roles in the roleRefs of bindings exist on the
	// managed cluster. The result is reported in the conditions ValidateRolesExist and
	// ValidateClusterRolesExist. Defaults to false.
	// +optional
	Validate *bool `json:"validate,omitempty"`

	// clusterRole is a ClusterRole to create on the managed cluster. Its name is the name of the
	// ClusterPermission.
	// +optional
	ClusterRole *ClusterRole `json:"clusterRole,omitempty"`

	// clusterRoleBinding is a ClusterRoleBinding to create on the managed cluster, in addition to
	// clusterRoleBindings.
	// +optional
	ClusterRoleBinding *ClusterRoleBinding `json:"clusterRoleBinding,omitempty"`

	// clusterRoleBindings is a list of ClusterRoleBindings to create on the managed cluster. Their names must
	// be unique.
	// +optional
	// +listType=atomic
	ClusterRoleBindings *[]ClusterRoleBinding `json:"clusterRoleBindings,omitempty"`

	// roles is a list of Roles to create in namespaces of the managed cluster. Their name is the name of the
	// ClusterPermission.
	// +optional
	// +listType=atomic
	Roles *[]Role `json:"roles,omitempty"`

	// roleBindings is a list of RoleBindings to create in namespaces of the managed cluster. Their names must
	// be unique in each namespace.
	// +optional
	// +listType=atomic
	RoleBindings *[]RoleBinding `json:"roleBindings,omitempty"`

	// roleRefs is a list of Roles and ClusterRoles of the hub to create on the managed cluster with the same
	// names and rules.
	// +optional
	// +listType=atomic
	RoleRefs *[]HubRoleRef `json:"roleRefs,omitempty"`
}

// ClusterRole describes a ClusterRole to create on the managed cluster.
type ClusterRole struct {
	// rules is the list of policy rules of the ClusterRole.
	// +listType=atomic
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// ClusterRoleBinding describes a ClusterRoleBinding to create on the managed cluster.
type ClusterRoleBinding struct {
	// name is the name of the ClusterRoleBinding on the managed cluster. Defaults to the name of the
	// ClusterPermission.
	// +optional
	Name string `json:"name,omitempty"`

	// roleRef refers to the ClusterRole to bind. It may exist on the managed cluster already. Defaults to the
	// ClusterRole that the ClusterPermission defines.
	// +optional
	RoleRef *rbacv1.RoleRef `json:"roleRef,omitempty"`

	// subject is the subject to bind the role to. It is ignored if subjects is not empty.
	// +optional
	Subject *rbacv1.Subject `json:"subject,omitempty"`

	// subjects is the list of subjects to bind the role to. A subject of kind ManagedServiceAccount and
	// apiGroup authentication.open-cluster-management.io refers to the ServiceAccount of that
	// ManagedServiceAccount on the managed cluster.
	// +optional
	// +listType=atomic
	Subjects []rbacv1.Subject `json:"subjects,omitzero"`
}

// Role describes a Role to create in one or more namespaces of the managed cluster.
type Role struct {
	// namespace is the namespace of the managed cluster to create the Role in. Exactly one of namespace and
	// namespaceSelector must be set.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// namespaceSelector selects by labels the namespaces to create the Role in. Exactly one of namespace and
	// namespaceSelector must be set.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// rules is the list of policy rules of the Role.
	// +listType=atomic
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// RoleBinding describes a RoleBinding to create in one or more namespaces of the managed cluster.
type RoleBinding struct {
	// name is the name of the RoleBinding on the managed cluster. Defaults to the name of the
	// ClusterPermission.
	// +optional
	Name string `json:"name,omitempty"`

	// namespace is the namespace of the managed cluster to create the RoleBinding in. Exactly one of namespace
	// and namespaceSelector must be set.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// namespaceSelector selects by labels the namespaces to create the RoleBinding in. Exactly one of namespace
	// and namespaceSelector must be set.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// roleRef refers to the Role or ClusterRole to bind.
	RoleRef RoleRef `json:"roleRef"`

	// subject is the subject to bind the role to. It is ignored if subjects is not empty.
	// +optional
	Subject *rbacv1.Subject `json:"subject,omitempty"`

	// subjects is the list of subjects to bind the role to. A subject of kind ManagedServiceAccount and
	// apiGroup authentication.open-cluster-management.io refers to the ServiceAccount of that
	// ManagedServiceAccount on the managed cluster.
	// +optional
	// +listType=atomic
	Subjects []rbacv1.Subject `json:"subjects,omitzero"`
}

// RoleRef refers to the role that a RoleBinding binds. To bind a role that exists on the managed cluster, set
// apiGroup and name. To bind the role that the ClusterPermission defines, omit both.
type RoleRef struct {
	// apiGroup is the API group of the role, rbac.authorization.k8s.io.
	// +optional
	APIGroup *string `json:"apiGroup,omitempty"`

	// kind is Role or ClusterRole.
	Kind string `json:"kind"`

	// name is the name of the role.
	// +optional
	Name *string `json:"name,omitempty"`
}

// HubRoleRef refers to a Role or ClusterRole of the hub.
type HubRoleRef struct {
	// apiGroup is the API group of the role. Defaults to rbac.authorization.k8s.io.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`

	// kind is Role or ClusterRole.
	Kind string `json:"kind"`

	// name is the name of the role.
	Name string `json:"name"`

	// namespace is the namespace of the Role, on the hub and on the managed cluster. It is empty for a
	// ClusterRole.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ClusterPermissionStatus reports the delivery of a ClusterPermission to the managed cluster.
type ClusterPermissionStatus struct {
	// conditions report the state of the delivery. Known types are RBACManifestWorkCreated,
	// AppliedRBACManifestWork, Validation, SubjectPresent, FullyDelivered, NamespacesSelected, RoleRefsPresent,
	// Approved, ValidateRolesExist and ValidateClusterRolesExist.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// resourceStatus reports the state of each delivered object on the managed cluster.
	// +optional
	ResourceStatus *ResourceStatus `json:"resourceStatus,omitempty"`

	// approval reports the generations of the spec that wait for approval and that were approved. The server
	// sets it when the spec changes and for requests to the subresource approval.
	// +optional
	Approval *Approval `json:"approval,omitempty"`
}

// Approval reports the approval of a ClusterPermission. If the server runs with
// --clusterpermission-escalation-check=Approve, a spec waits for approval while its author lacks the
// permissions that it grants.
type Approval struct {
	// pending is the generation that waits for approval. It is not delivered.
	// +optional
	Pending *PendingGeneration `json:"pending,omitempty"`

	// approved is the last generation that was approved.
	// +optional
	Approved *ApprovedGeneration `json:"approved,omitempty"`

	// delivered is the generation that stays delivered while a newer one waits. It is empty if none is
	// delivered.
	// +optional
	Delivered *DeliveredGeneration `json:"delivered,omitempty"`
}

// PendingGeneration is a generation of the spec that waits for approval.
type PendingGeneration struct {
	// generation is the generation that waits.
	Generation int64 `json:"generation"`

	// requestedBy is the name of the user who wrote the spec.
	RequestedBy string `json:"requestedBy"`

	// requestedAt is the time at which the spec was written.
	RequestedAt metav1.Time `json:"requestedAt"`
}

// ApprovedGeneration is a generation of the spec that was approved.
type ApprovedGeneration struct {
	// generation is the generation that was approved.
	Generation int64 `json:"generation"`

	// approvedBy is the name of the user who approved the spec.
	ApprovedBy string `json:"approvedBy"`

	// approvedAt is the time of the approval.
	ApprovedAt metav1.Time `json:"approvedAt"`
}

// DeliveredGeneration is a former generation of the spec that stays delivered.
type DeliveredGeneration struct {
	// generation is the generation that is delivered.
	Generation int64 `json:"generation"`

	// spec is the spec of that generation.
	Spec ClusterPermissionSpec `json:"spec"`
}

// ResourceStatus reports the state of the delivered objects by kind.
type ResourceStatus struct {
	// clusterRoles is the list of delivered ClusterRoles.
	// +optional
	// +listType=atomic
	ClusterRoles []ClusterScopedResourceStatus `json:"clusterRoles,omitempty"`

	// clusterRoleBindings is the list of delivered ClusterRoleBindings.
	// +optional
	// +listType=atomic
	ClusterRoleBindings []ClusterScopedResourceStatus `json:"clusterRoleBindings,omitempty"`

	// roles is the list of delivered Roles.
	// +optional
	// +listType=atomic
	Roles []NamespacedResourceStatus `json:"roles,omitempty"`

	// roleBindings is the list of delivered RoleBindings.
	// +optional
	// +listType=atomic
	RoleBindings []NamespacedResourceStatus `json:"roleBindings,omitempty"`
}

// ClusterScopedResourceStatus reports the state of one ClusterRole or ClusterRoleBinding.
type ClusterScopedResourceStatus struct {
	// name is the name of the object on the managed cluster.
	Name string `json:"name"`

	// condition lists the conditions of the object. The known type is Applied.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"condition,omitempty"`
}

// NamespacedResourceStatus reports the state of one Role or RoleBinding.
type NamespacedResourceStatus struct {
	// name is the name of the object on the managed cluster.
	Name string `json:"name"`

	// namespace is the namespace of the object on the managed cluster.
	Namespace string `json:"namespace"`

	// condition lists the conditions of the object. The known type is Applied.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"condition,omitempty"`
}
