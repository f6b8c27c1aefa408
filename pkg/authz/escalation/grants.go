package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

var specPath = field.NewPath("spec")

// grant contains the permissions that one part of a spec grants in addition to the permissions that were granted
// before. These are the rules. If open is set, they include the rules of a role of that name that the spec does not
// define. If live is set, they include all permissions. If shadowed is set, they include the rules that others deliver
// in a role of that name.
type grant struct {
	path  *field.Path
	verb  string
	where scope
	// role is bound or referred to. It is zero if the part defines rules.
	role                 rbac.Key
	rules                []rbacv1.PolicyRule
	open, live, shadowed bool
}

// granted contains the permissions of the spec that was allowed before.
type granted struct {
	roles *specRoles
	bound map[boundSubject]bool
}

type boundSubject struct {
	where   scope
	role    rbac.Key
	subject rbacv1.Subject
}

// newGranted accepts a nil spec, which grants nothing.
func newGranted(name string, spec *rbacv1alpha1.ClusterPermissionSpec) *granted {
	if spec == nil {
		spec = &rbacv1alpha1.ClusterPermissionSpec{}
	}
	before := &granted{roles: newSpecRoles(name, spec), bound: map[boundSubject]bool{}}
	for _, b := range bindings(name, spec) {
		for _, s := range b.subjects {
			before.bound[boundSubject{b.where, b.role, s}] = true
		}
	}
	return before
}

// binds reports whether each subject of the binding was bound to that role in that scope before, by any binding.
func (g *granted) binds(b *binding) bool {
	for _, s := range b.subjects {
		if !g.bound[boundSubject{b.where, b.role, s}] {
			return false
		}
	}
	return true
}

// newGrants returns the parts of the spec that grant more than before, in the order of the spec.
func newGrants(name string, spec *rbacv1alpha1.ClusterPermissionSpec, before *granted, work *budget) []grant {
	var grants []grant
	defined := func(path *field.Path, where scope, old, rules []rbacv1.PolicyRule) {
		if more := work.uncovered(old, rules); len(more) > 0 {
			grants = append(grants, grant{path: path, verb: verbEscalate, where: where, rules: more})
		}
	}
	if spec.ClusterRole != nil {
		var old []rbacv1.PolicyRule
		if before.roles.clusterRole != nil {
			old = before.roles.clusterRole.Rules
		}
		defined(specPath.Child("clusterRole"), scope{}, old, spec.ClusterRole.Rules)
	}
	for i, role := range ptr.Deref(spec.Roles, nil) {
		where := scopeOf(role.Namespace, role.NamespaceSelector)
		defined(specPath.Child("roles").Index(i), where, before.roles.roles[where], role.Rules)
	}
	grants = append(grants, newBindings(name, spec, before, work)...)
	for i, ref := range ptr.Deref(spec.RoleRefs, nil) {
		if key := hubRole(ref); !before.roles.refs[key] {
			where := scope{}
			if key.Kind == rbac.KindRole {
				where.namespace = key.Namespace
			}
			grants = append(grants, grant{path: specPath.Child("roleRefs").Index(i), verb: verbEscalate, where: where, role: key, live: true})
		}
	}
	return grants
}

func newBindings(name string, spec *rbacv1alpha1.ClusterPermissionSpec, before *granted, work *budget) []grant {
	var grants []grant
	roles := newSpecRoles(name, spec)
	for _, b := range bindings(name, spec) {
		if !work.keep(roles.size(b.role) + before.roles.size(b.role)) {
			// A binding that exceeds the budget counts as a grant of all permissions.
			grants = append(grants, grant{path: b.path, verb: verbBind, where: b.where, role: b.role, live: true})
			continue
		}
		now := roles.bound(b.role, b.where)
		g := grant{path: b.path, verb: verbBind, where: b.where, role: b.role, rules: now.rules, open: now.open, live: now.live, shadowed: true}
		if before.binds(&b) {
			old := before.roles.bound(b.role, b.where)
			g.rules = work.uncovered(old.rules, now.rules)
			g.live = now.live && !old.live
			// A role that is open now and was before is the same unknown role.
			g.open = now.open && !old.open
			g.shadowed = g.open
		}
		if len(g.rules) > 0 || g.open || g.live || g.shadowed {
			grants = append(grants, g)
		}
	}
	return grants
}
