package rbac

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MulticlusterRoleAssignment grants ClusterRoles to one subject on many managed clusters. The server writes a
// ClusterPermission into the namespace of each selected cluster. A cluster that is selected later gets the
// permissions, and a cluster that is no longer selected loses them. If the MulticlusterRoleAssignment is deleted,
// all clusters lose them.
type MulticlusterRoleAssignment struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   MulticlusterRoleAssignmentSpec
	Status MulticlusterRoleAssignmentStatus
}

// MulticlusterRoleAssignmentSpec lists the role assignments of one subject.
type MulticlusterRoleAssignmentSpec struct {
	Subject         Subject
	RoleAssignments []RoleAssignment
}

// Subject is the subject of a MulticlusterRoleAssignment.
type Subject struct {
	APIGroup  *string
	Kind      string
	Name      string
	Namespace *string
}

// RoleAssignment grants one ClusterRole on the selected clusters.
type RoleAssignment struct {
	Name             string
	ClusterRole      string
	TargetNamespaces []string
	ClusterSelection ClusterSelection
}

// ClusterSelection selects managed clusters.
type ClusterSelection struct {
	Type          string
	Placements    []PlacementRef
	ClusterSets   []string
	LabelSelector *metav1.LabelSelector
}

// PlacementRef refers to a Placement.
type PlacementRef struct {
	Name      string
	Namespace string
}

// MulticlusterRoleAssignmentStatus reports the clusters of a MulticlusterRoleAssignment and their state.
type MulticlusterRoleAssignmentStatus struct {
	Conditions      []metav1.Condition
	RoleAssignments []RoleAssignmentStatus
	AppliedClusters []string
	Clusters        *AssignmentClusters
	Authors         []AssignmentAuthor
	Preview         *AssignmentPreview
}

// RoleAssignmentStatus reports the state of one role assignment.
type RoleAssignmentStatus struct {
	Name      string
	Status    string
	Reason    string
	Message   string
	CreatedAt metav1.Time
}

// AssignmentClusters counts the clusters of a MulticlusterRoleAssignment.
type AssignmentClusters struct {
	Selected int32
	Ready    int32
	Failing  []ClusterFailure
}

// ClusterFailure is a cluster with grants that are not applied.
type ClusterFailure struct {
	Name    string
	Reason  string
	Message string
}

// AssignmentAuthor is a user who wrote role assignments.
type AssignmentAuthor struct {
	Username        string
	UID             string
	Groups          []string
	Extra           map[string][]string
	RoleAssignments []string
}

// AssignmentPreview lists the changes that a request would make.
type AssignmentPreview struct {
	Selected int32
	Changed  int32
	Changes  []AssignmentChange
}

// AssignmentChange is a change of the grants on clusters.
type AssignmentChange struct {
	Clusters []string
	Grant    []Grant
	Revoke   []Grant
	Refuse   []Grant
}

// Grant is a ClusterRole that is granted to a subject.
type Grant struct {
	Subject     string
	ClusterRole string
	Namespace   string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MulticlusterRoleAssignmentList is a list of MulticlusterRoleAssignments.
type MulticlusterRoleAssignmentList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []MulticlusterRoleAssignment
}
