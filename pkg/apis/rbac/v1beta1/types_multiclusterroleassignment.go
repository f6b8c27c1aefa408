package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of ClusterSelection.
const (
	// SelectPlacements selects the clusters in the decisions of Placements.
	SelectPlacements = "placements"
	// SelectClusterSets selects the clusters of ManagedClusterSets.
	SelectClusterSets = "clusterSets"
	// SelectLabels selects the clusters whose labels match a selector.
	SelectLabels = "labelSelector"
)

// Condition types of a MulticlusterRoleAssignment, and their reasons.
const (
	// ConditionApplied is True if a ClusterPermission with the current grants exists in the namespace of each
	// selected cluster.
	ConditionApplied = "Applied"
	// ConditionReady is True if all role assignments are active on all selected clusters.
	ConditionReady = "Ready"

	ReasonApplied         = "Applied"
	ReasonApplyFailed     = "ApplyFailed"
	ReasonApplyInProgress = "ApplyInProgress"

	ReasonAssignmentsReady   = "AssignmentsReady"
	ReasonAssignmentsPending = "AssignmentsPending"
	ReasonAssignmentsFailure = "AssignmentsFailure"
	ReasonProvisioningFailed = "ProvisioningFailed"
)

// Values of the status of a role assignment, and its reasons.
const (
	AssignmentPending = "Pending"
	AssignmentActive  = "Active"
	AssignmentError   = "Error"

	ReasonProcessing          = "Processing"
	ReasonInvalidReference    = "InvalidReference"
	ReasonNoMatchingClusters  = "NoMatchingClusters"
	ReasonSuccessfullyApplied = "SuccessfullyApplied"
	ReasonApplicationFailed   = "ApplicationFailed"
)

// Metadata of the ClusterPermissions of MulticlusterRoleAssignments. Only the server can set the label
// NamespaceLabel and the annotations.
const (
	// ManagedByLabel and ManagedByValue mark all of them.
	ManagedByLabel = "rbac.open-cluster-management.io/managed-by"
	ManagedByValue = "multiclusterroleassignment-controller"
	// NamespaceLabel contains the namespace of the MulticlusterRoleAssignment, NameAnnotation its name, and
	// UIDAnnotation its UID.
	NamespaceLabel = "rbac.open-cluster-management.io/role-assignment-namespace"
	NameAnnotation = "rbac.open-cluster-management.io/role-assignment-name"
	UIDAnnotation  = "rbac.open-cluster-management.io/role-assignment-uid"
)

// Limits of a MulticlusterRoleAssignment.
const (
	// MaxRoleAssignments is the maximum number of role assignments.
	MaxRoleAssignments = 100
	// MaxTargetNamespaces is the maximum number of target namespaces of all role assignments.
	MaxTargetNamespaces = 1000
	// MaxReferences is the maximum number of Placements, ManagedClusterSets and requirements of label selectors of
	// all role assignments.
	MaxReferences = 200
	// MaxClusters is the maximum number of clusters of all role assignments.
	MaxClusters = 5000
	// MaxGrants is the maximum number of grants on all clusters.
	MaxGrants = 100_000
	// MaxFailingClusters is the maximum number of failing clusters in the status.
	MaxFailingClusters = 100
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MulticlusterRoleAssignment grants ClusterRoles to one subject on many managed clusters. The server writes a
// ClusterPermission into the namespace of each selected cluster. A cluster that is selected later gets the
// permissions, and a cluster that is no longer selected loses them. If the MulticlusterRoleAssignment is deleted,
// all clusters lose them.
type MulticlusterRoleAssignment struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec lists the roles to grant, and the clusters to grant them on.
	Spec MulticlusterRoleAssignmentSpec `json:"spec"`

	// status reports the clusters and their state. It is read-only.
	// +optional
	Status MulticlusterRoleAssignmentStatus `json:"status,omitempty"`
}

// MulticlusterRoleAssignmentSpec lists the role assignments of one subject.
type MulticlusterRoleAssignmentSpec struct {
	// subject is the user, group or ServiceAccount that gets the roles.
	Subject Subject `json:"subject"`

	// roleAssignments lists the roles to grant. At least one is required, and at most 100 are allowed. Their
	// names must be unique.
	// +listType=map
	// +listMapKey=name
	RoleAssignments []RoleAssignment `json:"roleAssignments"`
}

// Subject is the subject of a MulticlusterRoleAssignment.
type Subject struct {
	// apiGroup is the API group of the subject. It is rbac.authorization.k8s.io or empty for a user or a group,
	// and must be empty for a ServiceAccount.
	// +optional
	APIGroup *string `json:"apiGroup,omitempty"`

	// kind is User, Group or ServiceAccount.
	Kind string `json:"kind"`

	// name is the name of the subject.
	Name string `json:"name"`

	// namespace is the namespace of a ServiceAccount on the managed clusters. It must not be set for a user or a
	// group.
	// +optional
	Namespace *string `json:"namespace,omitempty"`
}

// RoleAssignment grants one ClusterRole on the selected clusters.
type RoleAssignment struct {
	// name identifies the role assignment.
	Name string `json:"name"`

	// clusterRole is the name of the ClusterRole to bind. It must exist on the hub when the role assignment is
	// written. The managed clusters apply the rules of their own ClusterRole of that name.
	ClusterRole string `json:"clusterRole"`

	// targetNamespaces lists the namespaces of the managed clusters in which the role is granted. If it is
	// empty, the role is granted in the whole cluster. All role assignments together may have at most 1,000.
	// +optional
	// +listType=atomic
	TargetNamespaces []string `json:"targetNamespaces,omitzero"`

	// clusterSelection selects the clusters.
	ClusterSelection ClusterSelection `json:"clusterSelection"`
}

// ClusterSelection selects managed clusters.
type ClusterSelection struct {
	// type is placements, clusterSets or labelSelector. The field of that name must be set, and the others must
	// not be set.
	Type string `json:"type"`

	// placements lists Placements. The clusters in their decisions are selected. All role assignments together may
	// refer to at most 200 Placements, ManagedClusterSets and requirements of label selectors.
	// +optional
	// +listType=atomic
	Placements []PlacementRef `json:"placements,omitzero"`

	// clusterSets lists the names of ManagedClusterSets. Their clusters are selected.
	// +optional
	// +listType=atomic
	ClusterSets []string `json:"clusterSets,omitzero"`

	// labelSelector selects clusters by their labels. An empty selector selects all clusters. All role assignments
	// together may select at most 5,000 clusters, and make at most 100,000 grants on them.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// PlacementRef refers to a Placement.
type PlacementRef struct {
	// name is the name of the Placement.
	Name string `json:"name"`

	// namespace is the namespace of the Placement.
	Namespace string `json:"namespace"`
}

// MulticlusterRoleAssignmentStatus reports the clusters of a MulticlusterRoleAssignment and their state.
type MulticlusterRoleAssignmentStatus struct {
	// conditions report the overall state. Known types are Applied and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`

	// roleAssignments reports the state of each role assignment.
	// +optional
	// +listType=map
	// +listMapKey=name
	RoleAssignments []RoleAssignmentStatus `json:"roleAssignments,omitempty"`

	// appliedClusters lists the clusters with a ClusterPermission of this MulticlusterRoleAssignment.
	// +optional
	// +listType=atomic
	AppliedClusters []string `json:"appliedClusters,omitempty"`

	// clusters counts the clusters by their state.
	// +optional
	Clusters *AssignmentClusters `json:"clusters,omitempty"`

	// authors lists the users who wrote the role assignments, as the server identified them. A user who may not
	// grant a role assignment on a cluster that is selected later grants nothing there. Only the server sets it.
	// +optional
	// +listType=atomic
	Authors []AssignmentAuthor `json:"authors,omitempty"`

	// preview lists the changes that a request would make. It is set only in responses to requests with dryRun
	// and to the subresource rendered, and never stored.
	// +optional
	Preview *AssignmentPreview `json:"preview,omitempty"`
}

// RoleAssignmentStatus reports the state of one role assignment.
type RoleAssignmentStatus struct {
	// name is the name of the role assignment.
	Name string `json:"name"`

	// status is Pending, Active or Error.
	Status string `json:"status"`

	// reason is the reason of the status: Processing, InvalidReference, NoMatchingClusters, SuccessfullyApplied
	// or ApplicationFailed.
	// +optional
	Reason string `json:"reason,omitempty"`

	// message describes the status.
	// +optional
	Message string `json:"message,omitempty"`

	// createdAt is the time at which the server first processed the role assignment.
	CreatedAt metav1.Time `json:"createdAt"`
}

// AssignmentClusters counts the clusters of a MulticlusterRoleAssignment.
type AssignmentClusters struct {
	// selected is the number of clusters that the role assignments select.
	Selected int32 `json:"selected"`

	// ready is the number of selected clusters that have applied all grants.
	Ready int32 `json:"ready"`

	// failing lists the first 100 clusters, sorted by name, with grants that are not applied.
	// +optional
	// +listType=atomic
	Failing []ClusterFailure `json:"failing,omitempty"`
}

// ClusterFailure is a cluster with grants that are not applied.
type ClusterFailure struct {
	// name is the name of the cluster.
	Name string `json:"name"`

	// reason is the reason in CamelCase.
	Reason string `json:"reason"`

	// message describes the reason.
	// +optional
	Message string `json:"message,omitempty"`
}

// AssignmentAuthor is a user who wrote role assignments.
type AssignmentAuthor struct {
	// username is the name of the user.
	Username string `json:"username"`

	// uid is the UID of the user.
	// +optional
	UID string `json:"uid,omitempty"`

	// groups lists the groups of the user at the time of the request.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`

	// extra contains additional information of the authenticator.
	// +optional
	Extra map[string][]string `json:"extra,omitempty"`

	// roleAssignments lists the names of the role assignments that the user wrote.
	// +listType=atomic
	RoleAssignments []string `json:"roleAssignments"`
}

// AssignmentPreview lists the changes that a request would make.
type AssignmentPreview struct {
	// selected is the number of clusters that the role assignments select.
	Selected int32 `json:"selected"`

	// changed is the number of clusters with changes.
	Changed int32 `json:"changed"`

	// changes lists the changes. Clusters with the same change share an item.
	// +optional
	// +listType=atomic
	Changes []AssignmentChange `json:"changes,omitempty"`
}

// AssignmentChange is a change of the grants on clusters.
type AssignmentChange struct {
	// clusters lists the names of the clusters.
	// +listType=atomic
	Clusters []string `json:"clusters"`

	// grant lists the grants that the clusters would get.
	// +optional
	// +listType=atomic
	Grant []Grant `json:"grant,omitempty"`

	// revoke lists the grants that the clusters would lose.
	// +optional
	// +listType=atomic
	Revoke []Grant `json:"revoke,omitempty"`

	// refuse lists the grants that the author may not make on the clusters.
	// +optional
	// +listType=atomic
	Refuse []Grant `json:"refuse,omitempty"`
}

// Grant is a ClusterRole that is granted to a subject.
type Grant struct {
	// subject is the subject: User, Group or ServiceAccount, a slash, and the name. The name of a
	// ServiceAccount has the form namespace:name.
	Subject string `json:"subject"`

	// clusterRole is the name of the ClusterRole.
	ClusterRole string `json:"clusterRole"`

	// namespace is the namespace of the managed cluster, or empty for the whole cluster.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}
