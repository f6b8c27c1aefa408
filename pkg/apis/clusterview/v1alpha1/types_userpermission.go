package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// DiscoverableLabel is the label of the ClusterRoles of the hub that UserPermissions show, if its value is "true".
	DiscoverableLabel = GroupName + "/discoverable"

	// AdminRole and ViewRole are the names of the UserPermissions for clusters that a user may change, or view, through
	// the hub: users with permission to create managedclusteractions and managedclusterviews in the namespace of the
	// cluster, or the latter only.
	AdminRole = "managedcluster:admin"
	ViewRole  = "managedcluster:view"
)

// +genclient
// +genclient:nonNamespaced
// +genclient:onlyVerbs=get,list,watch
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// UserPermission shows on which clusters the caller has a ClusterRole. It has the name of the ClusterRole, and is read-only.
type UserPermission struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status contains the clusters.
	// +optional
	Status UserPermissionStatus `json:"status,omitempty"`
}

// UserPermissionStatus contains the clusters on which the caller has a ClusterRole.
type UserPermissionStatus struct {
	// bindings are the clusters, sorted by name.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	Bindings []ClusterBinding `json:"bindings,omitempty"`

	// clusterRoleDefinition contains the rules of the ClusterRole on the hub.
	// +optional
	ClusterRoleDefinition ClusterRoleDefinition `json:"clusterRoleDefinition,omitempty"`
}

// BindingScope specifies where on a cluster a role is bound.
type BindingScope string

const (
	// ScopeCluster is the scope of a role that is bound in the whole cluster.
	ScopeCluster BindingScope = "cluster"
	// ScopeNamespace is the scope of a role that is bound in some namespaces.
	ScopeNamespace BindingScope = "namespace"
)

// ClusterBinding shows where on a cluster the caller has the ClusterRole.
type ClusterBinding struct {
	// cluster is the name of the cluster.
	Cluster string `json:"cluster"`

	// scope is cluster or namespace.
	Scope BindingScope `json:"scope"`

	// namespaces are the namespaces of the cluster, sorted. For scope cluster, it contains only "*".
	// +listType=set
	Namespaces []string `json:"namespaces"`
}

// ClusterRoleDefinition contains the rules of a ClusterRole.
type ClusterRoleDefinition struct {
	// rules are the rules of the ClusterRole.
	// +optional
	// +listType=atomic
	Rules []rbacv1.PolicyRule `json:"rules,omitempty"`
}
