package access

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// Writer receives what clusters report. Index implements it.
type Writer interface {
	// Update changes the roles and bindings of a cluster in one step: readers see all of
	// it or nothing. If it returns an error, nothing has changed. It does not change the
	// state of the cluster, which is unknown until SetState.
	Update(cluster string, u *Update) error
	// SetState sets how far the reported roles and bindings can be relied on.
	SetState(cluster string, s State)
	// Remove deletes a cluster with all that it reported.
	Remove(cluster string)
}

// Update is a change of the roles and bindings of one cluster. The receiver keeps no
// reference to it.
type Update struct {
	// Full replaces everything that the cluster reported before. Otherwise the objects
	// are added or replaced, and the deleted ones are removed.
	Full bool
	// Roles are the rules of Roles and ClusterRoles. An aggregated ClusterRole has the
	// rules that its cluster computed.
	Roles        map[rbac.Key][]rbacv1.PolicyRule
	DeletedRoles []rbac.Key
	// Bindings are RoleBindings and ClusterRoleBindings.
	Bindings        map[rbac.Key]Binding
	DeletedBindings []rbac.Key
}

// Binding is the content of a RoleBinding or a ClusterRoleBinding.
type Binding struct {
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

// State says how far the report of a cluster can be relied on. Its zero value means
// that nothing is known.
type State struct {
	// Known means that the report is complete and current. Without it, every answer
	// about the cluster is Unknown.
	Known bool
	// Reason is a sentence for users that says why the cluster is not Known.
	Reason string
	// OtherAuthorizers means that the API server of the cluster asks another authorizer
	// in addition to RBAC. Where RBAC denies, the answer is Unknown.
	OtherAuthorizers bool
}
