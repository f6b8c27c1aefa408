package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

var specPath = field.NewPath("spec")

// grant is what one part of a spec grants beyond what was granted before. To hold
// it takes all of: the rules; if open, what a role of that name grants that the spec
// does not define; if live, everything; and if shadowed, what others who deliver a
// role of that name put into it.
type grant struct {
	path  *field.Path
	verb  string
	where scope
	// role is bound or referred to; zero for a part that defines rules.
	role                 roleKey
	rules                []rbacv1.PolicyRule
	open, live, shadowed bool
}

// granted is what a spec granted that was allowed.
type granted struct {
	roles *specRoles
	bound map[boundSubject]bool
}

type boundSubject struct {
	where   scope
	role    roleKey
	subject rbacv1.Subject
}

// newGranted takes nil for a spec that granted nothing.
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

// binds reports whether each subject of the binding had that role there already,
// by whatever bindings. Their names grant nothing.
func (g *granted) binds(b *binding) bool {
	for _, s := range b.subjects {
		if !g.bound[boundSubject{b.where, b.role, s}] {
			return false
		}
	}
	return true
}

// newGrants are the parts of the spec that grant more than before, in the order of
// the spec.
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
		where := placed(role.Namespace, role.NamespaceSelector)
		defined(specPath.Child("roles").Index(i), where, before.roles.roles[where], role.Rules)
	}
	grants = append(grants, newBindings(name, spec, before, work)...)
	for i, ref := range ptr.Deref(spec.RoleRefs, nil) {
		if key := hubRole(ref); !before.roles.refs[key] {
			where := scope{}
			if key.kind == kindRole {
				where.namespace = key.namespace
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
		if !work.take(roles.size(b.role) + before.roles.size(b.role)) {
			// Too much to tell apart counts as everything.
			grants = append(grants, grant{path: b.path, verb: verbBind, where: b.where, role: b.role, live: true})
			continue
		}
		is := roles.bound(b.role, b.where)
		g := grant{path: b.path, verb: verbBind, where: b.where, role: b.role, rules: is.rules, open: is.open, live: is.live, shadowed: true}
		if before.binds(&b) {
			was := before.roles.bound(b.role, b.where)
			g.rules = work.uncovered(was.rules, is.rules)
			g.live = is.live && !was.live
			// What is open now and was before is the same unknown role.
			g.open = is.open && !was.open
			g.shadowed = g.open
		}
		if len(g.rules) > 0 || g.open || g.live || g.shadowed {
			grants = append(grants, g)
		}
	}
	return grants
}
