package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// adoptedNames are ClusterRoles that every cluster has and whose rules it restores
// or aggregates by itself: an own ClusterRole of such a name grants more than it says.
var adoptedNames = sets.New("admin", "cluster-admin", "edit", "view")

// specRoles are the roles that a spec delivers.
type specRoles struct {
	// name of the ClusterPermission, which all of its own roles have.
	name string
	// clusterRole are the rules of the own ClusterRole, nil if there is none.
	clusterRole *rbacv1alpha1.ClusterRole
	// roles are the rules of the own Roles by their place.
	roles map[scope][]rbacv1.PolicyRule
	// selected are the rules of all own Roles that are placed by a selector: any of
	// them may be in any namespace. all are those of the others as well.
	selected, all []rbacv1.PolicyRule
	// refs are the roles of the hub it refers to; named are the same without their namespaces.
	refs, named map[roleKey]bool
}

func newSpecRoles(name string, spec *rbacv1alpha1.ClusterPermissionSpec) *specRoles {
	own := &specRoles{
		name: name, clusterRole: spec.ClusterRole, roles: map[scope][]rbacv1.PolicyRule{},
		refs: map[roleKey]bool{}, named: map[roleKey]bool{},
	}
	for _, role := range ptr.Deref(spec.Roles, nil) {
		where := placed(role.Namespace, role.NamespaceSelector)
		own.roles[where] = append(own.roles[where], role.Rules...)
		own.all = append(own.all, role.Rules...)
		if where.selected {
			own.selected = append(own.selected, role.Rules...)
		}
	}
	for _, ref := range ptr.Deref(spec.RoleRefs, nil) {
		key := hubRole(ref)
		own.refs[key] = true
		own.named[roleKey{kind: key.kind, name: key.name}] = true
	}
	return own
}

// size is how many rules a binding to a role may grant, at most.
func (r *specRoles) size(key roleKey) int {
	switch {
	case key.name != r.name:
	case key.kind == kindRole:
		return len(r.all)
	case r.clusterRole != nil:
		return len(r.clusterRole.Rules)
	}
	return 0
}

// content is what a spec says about the role that a binding refers to.
type content struct {
	// rules are what the spec itself puts into the role.
	rules []rbacv1.PolicyRule
	// open is set unless the spec surely delivers the role wherever it is bound:
	// then what is bound may be a role of that name which is there anyway.
	open bool
	// live is set if the spec delivers a role of the hub under that name: what it
	// grants is for others to change.
	live bool
}

// bound tells what a binding in a scope grants by referring to a role.
func (r *specRoles) bound(key roleKey, where scope) content {
	c := content{open: true, live: r.refs[key] || key.namespace == "" && r.named[key]}
	if key.name != r.name {
		return c
	}
	switch key.kind {
	case kindClusterRole:
		if r.clusterRole != nil {
			c.rules, c.open = within(where, r.clusterRole.Rules), adoptedNames.Has(key.name)
		}
	case kindRole:
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

// versions are the rules with which the spec may have delivered its own role of
// that key.
func (r *specRoles) versions(key roleKey) [][]rbacv1.PolicyRule {
	var versions [][]rbacv1.PolicyRule
	switch {
	case key.name != r.name:
	case key.kind == kindClusterRole && r.clusterRole != nil:
		versions = append(versions, r.clusterRole.Rules)
	case key.kind == kindRole:
		for where, rules := range r.roles {
			if where.selected || where.namespace == key.namespace {
				versions = append(versions, rules)
			}
		}
	}
	return versions
}

// binding is a binding of a spec in the form in which two of them compare.
type binding struct {
	path     *field.Path
	where    scope
	role     roleKey
	subjects []rbacv1.Subject
}

func bindings(name string, spec *rbacv1alpha1.ClusterPermissionSpec) []binding {
	var all []binding
	clusterWide := func(path *field.Path, b *rbacv1alpha1.ClusterRoleBinding) {
		key := roleKey{kind: kindClusterRole, name: name}
		if ref := b.RoleRef; ref != nil {
			key = roleKey{kind: ref.Kind, name: nameOr(ref.Name, name)}
		}
		all = append(all, binding{path: path, role: key, subjects: subjects(b.Subject, b.Subjects)})
	}
	if spec.ClusterRoleBinding != nil {
		clusterWide(specPath.Child("clusterRoleBinding"), spec.ClusterRoleBinding)
	}
	for i := range ptr.Deref(spec.ClusterRoleBindings, nil) {
		clusterWide(specPath.Child("clusterRoleBindings").Index(i), &(*spec.ClusterRoleBindings)[i])
	}
	for i := range ptr.Deref(spec.RoleBindings, nil) {
		b := &(*spec.RoleBindings)[i]
		where := placed(b.Namespace, b.NamespaceSelector)
		key := roleKey{kind: b.RoleRef.Kind, name: nameOr(ptr.Deref(b.RoleRef.Name, ""), name)}
		if key.kind == kindRole {
			key.namespace = where.namespace
		}
		all = append(all, binding{
			path: specPath.Child("roleBindings").Index(i), where: where, role: key, subjects: subjects(b.Subject, b.Subjects),
		})
	}
	return all
}

// subjects are those of a binding, such that the same identity is always written
// the same. A binding without any has an empty one, so that it is not taken for
// one whose subjects were all allowed before.
func subjects(subject *rbacv1.Subject, more []rbacv1.Subject) []rbacv1.Subject {
	given := more[:len(more):len(more)]
	if subject != nil || len(more) == 0 {
		given = append(given, ptr.Deref(subject, rbacv1.Subject{}))
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

func nameOr(name, otherwise string) string {
	if name != "" {
		return name
	}
	return otherwise
}
