package escalation

import (
	"cmp"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// adoptedNames are the ClusterRoles of every cluster whose rules the cluster restores or
// aggregates itself: a delivered ClusterRole of such a name grants more than its rules.
var adoptedNames = sets.New("admin", "cluster-admin", "edit", "view")

// specRoles are the roles that a spec delivers.
type specRoles struct {
	// name is the name of the ClusterPermission and of all roles that it defines.
	name string
	// clusterRole is the ClusterRole that the spec defines, or nil.
	clusterRole *rbacv1alpha1.ClusterRole
	// roles are the rules of the Roles that the spec defines.
	roles map[scope][]rbacv1.PolicyRule
	// selected contains the rules of all Roles with a selector, each of which may be in
	// any namespace. all contains the rules of all Roles.
	selected, all []rbacv1.PolicyRule
	// refs are the roles of the hub that the spec refers to; named are the same without their namespaces.
	refs, named map[rbac.Key]bool
}

func newSpecRoles(name string, spec *rbacv1alpha1.ClusterPermissionSpec) *specRoles {
	own := &specRoles{
		name: name, clusterRole: spec.ClusterRole, roles: map[scope][]rbacv1.PolicyRule{},
		refs: map[rbac.Key]bool{}, named: map[rbac.Key]bool{},
	}
	for _, role := range ptr.Deref(spec.Roles, nil) {
		where := scopeOf(role.Namespace, role.NamespaceSelector)
		own.roles[where] = append(own.roles[where], role.Rules...)
		own.all = append(own.all, role.Rules...)
		if where.selected {
			own.selected = append(own.selected, role.Rules...)
		}
	}
	for _, ref := range ptr.Deref(spec.RoleRefs, nil) {
		key := hubRole(ref)
		own.refs[key] = true
		own.named[rbac.Key{Kind: key.Kind, Name: key.Name}] = true
	}
	return own
}

// size returns the maximum number of rules that a binding to a role may grant.
func (r *specRoles) size(key rbac.Key) int {
	switch {
	case key.Name != r.name:
	case key.Kind == rbac.KindRole:
		return len(r.all)
	case r.clusterRole != nil:
		return len(r.clusterRole.Rules)
	}
	return 0
}

// content is the part of a bound role that the spec defines.
type content struct {
	// rules are the rules that the spec defines.
	rules []rbacv1.PolicyRule
	// open is set unless the spec delivers the role wherever it is bound. Then the
	// binding may refer to another role of that name on the managed cluster.
	open bool
	// live is set if the spec delivers a role of the hub under that name. Others can change its rules.
	live bool
}

// bound returns the content of a role that a binding grants in a scope.
func (r *specRoles) bound(key rbac.Key, where scope) content {
	c := content{open: true, live: r.refs[key] || key.Namespace == "" && r.named[key]}
	if key.Name != r.name {
		return c
	}
	switch key.Kind {
	case rbac.KindClusterRole:
		if r.clusterRole != nil {
			c.rules, c.open = within(where, r.clusterRole.Rules), adoptedNames.Has(key.Name)
		}
	case rbac.KindRole:
		here, surely := r.roles[where]
		c.open = !surely
		if where.selected {
			c.rules = r.all
		} else {
			c.rules = append(here[:len(here):len(here)], r.selected...)
		}
		c.rules = within(where, c.rules)
	}
	return c
}

// versions returns the rules that the spec may have delivered in the role of that key.
func (r *specRoles) versions(key rbac.Key) [][]rbacv1.PolicyRule {
	var versions [][]rbacv1.PolicyRule
	switch {
	case key.Name != r.name:
	case key.Kind == rbac.KindClusterRole && r.clusterRole != nil:
		versions = append(versions, r.clusterRole.Rules)
	case key.Kind == rbac.KindRole:
		for where, rules := range r.roles {
			if where.selected || where.namespace == key.Namespace {
				versions = append(versions, rules)
			}
		}
	}
	return versions
}

// binding is a binding in a form that can be compared. path is nil unless it is the binding of a spec.
type binding struct {
	path     *field.Path
	where    scope
	role     rbac.Key
	subjects []rbacv1.Subject
}

func bindings(name string, spec *rbacv1alpha1.ClusterPermissionSpec) []binding {
	var all []binding
	for path, b := range spec.AllClusterRoleBindings() {
		key := rbac.Key{Kind: rbac.KindClusterRole, Name: name}
		if ref := b.RoleRef; ref != nil {
			key = rbac.Key{Kind: ref.Kind, Name: cmp.Or(ref.Name, name)}
		}
		all = append(all, binding{path: path, role: key, subjects: subjects(b.Subject, b.Subjects)})
	}
	for i := range ptr.Deref(spec.RoleBindings, nil) {
		b := &(*spec.RoleBindings)[i]
		where := scopeOf(b.Namespace, b.NamespaceSelector)
		key := rbac.Key{Kind: b.RoleRef.Kind, Name: cmp.Or(ptr.Deref(b.RoleRef.Name, ""), name)}
		if key.Kind == rbac.KindRole {
			key.Namespace = where.namespace
		}
		all = append(all, binding{
			path: specPath.Child("roleBindings").Index(i), where: where, role: key, subjects: subjects(b.Subject, b.Subjects),
		})
	}
	return all
}

// subjects returns the subjects of a binding in a normal form. A binding without subjects has one empty subject.
// Otherwise it would equal a binding with only subjects that were allowed before.
func subjects(subject *rbacv1.Subject, more []rbacv1.Subject) []rbacv1.Subject {
	given := rbacv1alpha1.BindingSubjects(subject, more)
	if len(given) == 0 {
		given = []rbacv1.Subject{{}}
	}
	same := make([]rbacv1.Subject, len(given))
	for i, s := range given {
		switch {
		case s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind):
			s.APIGroup = rbacv1.GroupName
		case s.APIGroup == rbacv1alpha1.ManagedServiceAccountGroup && s.Kind == rbacv1alpha1.ManagedServiceAccountKind:
			// Such a subject is looked up in the namespace of the ClusterPermission.
			s.Namespace = ""
		}
		same[i] = s
	}
	return same
}
