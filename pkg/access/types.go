package access

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// The limits of what one cluster may report.
const (
	// MaxObjects bounds the roles, and the bindings.
	MaxObjects = 100_000
	// MaxBytes bounds the text of roles and bindings together.
	MaxBytes = 64 << 20
)

// Update is a change of the roles and bindings of one cluster. The receiver keeps the rules, which must not be changed.
type Update struct {
	// Full replaces everything that the cluster reported before. Otherwise the objects
	// are added or replaced, and the deleted ones are removed.
	Full bool
	// Roles are the rules of Roles and ClusterRoles. An aggregated ClusterRole has the rules that its cluster computed.
	Roles map[rbac.Key][]rbacv1.PolicyRule
	// Bindings are RoleBindings and ClusterRoleBindings.
	Bindings map[rbac.Key]Binding
	// DeletedRoles and DeletedBindings are different, and neither in Roles nor in Bindings.
	DeletedRoles, DeletedBindings []rbac.Key
}

// NewUpdate returns an Update without objects.
func NewUpdate(full bool) *Update {
	return &Update{Full: full, Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]Binding{}}
}

// ObjectUpdate returns the update that an event of a typed role or binding requires, or false for any other object. gone
// is true if the object has been deleted.
func ObjectUpdate(object any, gone bool) (*Update, bool) {
	o, known := rbac.FromTyped(object)
	u := NewUpdate(false)
	switch {
	case gone && o.IsRole():
		u.DeletedRoles = []rbac.Key{o.Key}
	case gone:
		u.DeletedBindings = []rbac.Key{o.Key}
	default:
		u.Set(&o)
	}
	return u, known
}

// Set adds or replaces a role or binding.
func (u *Update) Set(o *rbac.Object) {
	if o.IsRole() {
		u.Roles[o.Key] = o.Rules
	} else {
		u.Bindings[o.Key] = Binding{RoleRef: o.RoleRef, Subjects: o.Subjects}
	}
}

// Binding is the content of a RoleBinding or a ClusterRoleBinding.
type Binding struct {
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

// State says how far the report of a cluster can be relied on. Its zero value means that nothing is known.
type State struct {
	// Known means that the report is complete and current. Without it, every answer about the cluster is Unknown.
	Known bool
	// Reason is a sentence for users that says why the cluster is not Known.
	Reason string
	// OtherAuthorizers means that the API server of the cluster asks another authorizer
	// in addition to RBAC. Where RBAC denies, the answer is Unknown.
	OtherAuthorizers bool
}
