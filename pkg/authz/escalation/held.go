package escalation

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authentication/user"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// systemPrefix is the prefix of identities that each cluster defines itself. A
// ServiceAccount, node or master of the hub is a different identity on a managed cluster.
const systemPrefix = "system:"

// held contains the permissions of a caller on a managed cluster through delivered bindings, by namespace. The empty
// namespace is cluster-wide.
type held map[string]*heldRules

type heldRules struct {
	rules []rbacv1.PolicyRule
	// roles contains the bound roles with unknown rules. The caller holds all of their rules.
	roles map[rbac.Key]bool
}

func newHeld(caller user.Info, d *delivered) held {
	h := held{"": {roles: map[rbac.Key]bool{}}}
	for _, b := range d.bindings {
		if !slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool { return matches(caller, s) }) {
			continue
		}
		there := h[b.where.namespace]
		if there == nil {
			there = &heldRules{roles: map[rbac.Key]bool{}}
			h[b.where.namespace] = there
		}
		if role := d.role(b.role, nil); role.absent || role.opaque {
			there.roles[b.role] = true
		} else {
			there.rules = append(there.rules, within(b.where, role.rules)...)
		}
	}
	return h
}

// matches reports whether a caller of the hub is a subject on a managed cluster.
func matches(caller user.Info, s rbacv1.Subject) bool {
	if s.APIGroup != "" && s.APIGroup != rbacv1.GroupName {
		return false
	}
	switch s.Kind {
	case rbacv1.UserKind:
		return s.Name != "" && s.Name == caller.GetName() && !strings.HasPrefix(s.Name, systemPrefix)
	case rbacv1.GroupKind:
		if s.Name == user.AllAuthenticated && caller.GetName() == user.Anonymous {
			return false
		}
		return s.Name != "" && slices.Contains(caller.GetGroups(), s.Name) &&
			(s.Name == user.AllAuthenticated || !strings.HasPrefix(s.Name, systemPrefix))
	}
	return false
}

// rules returns the rules that the caller holds everywhere in the scope.
func (h held) rules(where scope) []rbacv1.PolicyRule {
	all := h[""].rules
	if there := h[where.namespace]; where.namespace != "" && there != nil {
		return append(all[:len(all):len(all)], there.rules...)
	}
	return all
}

// has reports whether the caller is bound to a role with unknown rules everywhere in the scope.
func (h held) has(role rbac.Key, where scope) bool {
	there := h[where.namespace]
	return h[""].roles[role] || there != nil && there.roles[role]
}

// delivered is the RBAC that ManifestWorks have delivered to a managed cluster.
type delivered struct {
	// roles are the contents of each role, one for each ManifestWork.
	roles    map[rbac.Key][]contents
	bindings []binding
	// namespaces maps the name of a Role to the namespaces that contain a Role of that name.
	namespaces map[string][]string
}

func parse(manifests []workv1.Manifest) *delivered {
	d := &delivered{roles: map[rbac.Key][]contents{}, namespaces: map[string][]string{}}
	for i := range manifests {
		raw, err := manifests[i].MarshalJSON()
		if err != nil {
			continue
		}
		if object, ok := rbac.ParseManifest(raw); ok {
			d.add(object)
		}
	}
	return d
}

func (d *delivered) add(o rbac.Object) {
	if o.IsRole() {
		if o.Key.Kind == rbac.KindRole && d.roles[o.Key] == nil {
			d.namespaces[o.Key.Name] = append(d.namespaces[o.Key.Name], o.Key.Namespace)
		}
		d.roles[o.Key] = append(d.roles[o.Key], contents{rules: o.Rules, opaque: o.Opaque})
		return
	}
	if role := rbac.RoleKey(o.RoleRef, o.Key.Namespace); role != (rbac.Key{}) {
		d.bindings = append(d.bindings, binding{where: scope{namespace: o.Key.Namespace}, role: role, subjects: o.Subjects})
	}
}

// contents contains the rules that ManifestWorks deliver under the name of a role.
type contents struct {
	// absent is set if no ManifestWork delivers such a role.
	absent bool
	// opaque is set if the rules are unknown or differ between ManifestWorks.
	opaque bool
	rules  []rbacv1.PolicyRule
}

// role returns the contents of a role. It ignores one delivered version that equals an element of own, which contains
// the versions that the ClusterPermission itself has delivered.
func (d *delivered) role(key rbac.Key, own [][]rbacv1.PolicyRule) contents {
	versions := d.roles[key]
	for i, v := range versions {
		same := func(rules []rbacv1.PolicyRule) bool { return apiequality.Semantic.DeepEqual(rules, v.rules) }
		if !v.opaque && slices.ContainsFunc(own, same) {
			versions = slices.Delete(slices.Clone(versions), i, i+1)
			break
		}
	}
	if len(versions) == 0 {
		return contents{absent: true}
	}
	for _, v := range versions {
		if v.opaque || !apiequality.Semantic.DeepEqual(v.rules, versions[0].rules) {
			return contents{opaque: true}
		}
	}
	return versions[0]
}
