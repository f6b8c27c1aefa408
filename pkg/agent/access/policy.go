package access

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// objectKey is the name of a role or a binding. That of a ClusterRole or a
// ClusterRoleBinding has no namespace, so that one map holds both kinds.
type objectKey = types.NamespacedName

// binding is what a binding says.
type binding struct {
	audience audience
	// role is the role that is granted; the zero key if nothing is.
	role objectKey
}

func newBinding(key objectKey, ref rbacv1.RoleRef, subjects []rbacv1.Subject) *binding {
	return &binding{audience: audienceOf(subjects, key.Namespace), role: roleKey(ref, key.Namespace)}
}

// roleKey returns the role that a binding in a namespace refers to; the zero key
// if it cannot refer to any.
func roleKey(ref rbacv1.RoleRef, namespace string) objectKey {
	switch {
	case ref.Kind == "ClusterRole":
		return objectKey{Name: ref.Name}
	case ref.Kind == "Role" && namespace != "":
		return objectKey{Namespace: namespace, Name: ref.Name}
	}
	return objectKey{}
}

// policy is what RBAC of a cluster says about ServiceAccounts, as far as it has
// been seen. Bindings may refer to roles that have not been seen.
type policy struct {
	roles    map[objectKey]*ruleSet
	bindings map[objectKey]*binding
	// byRole is which bindings refer to a role, byNamespace which are in a
	// namespace; ClusterRoleBindings are under the empty one.
	byRole      map[objectKey]sets.Set[objectKey]
	byNamespace map[string]sets.Set[objectKey]
}

func newPolicy() *policy {
	return &policy{
		roles: map[objectKey]*ruleSet{}, bindings: map[objectKey]*binding{},
		byRole: map[objectKey]sets.Set[objectKey]{}, byNamespace: map[string]sets.Set[objectKey]{},
	}
}

// share is rules that an audience has.
type share struct {
	audience audience
	rules    *ruleSet
}

func (s share) of(account types.NamespacedName) *ruleSet {
	if s.rules == nil || !s.audience.includes(account) {
		return nil
	}
	return s.rules
}

// change is what became of that which one binding grants, in one namespace or,
// if that is empty, everywhere.
type change struct {
	namespace     string
	before, after share
}

// event is what became of the policy at once.
type event struct {
	changes []change
	// roles are those whose rules are others now.
	roles []objectKey
}

func (e *event) add(other event) {
	e.changes = append(e.changes, other.changes...)
	e.roles = append(e.roles, other.roles...)
}

func (e event) empty() bool { return len(e.changes) == 0 && len(e.roles) == 0 }

// setRole takes note of the rules of a role; nil is for a role that is gone.
func (p *policy) setRole(key objectKey, rules *ruleSet) event {
	before, known := p.roles[key]
	if known && rules != nil && before.equal(rules) {
		return event{}
	}
	if rules == nil {
		delete(p.roles, key)
	} else {
		p.roles[key] = rules
	}
	if !known && rules == nil {
		return event{}
	}
	out := event{roles: []objectKey{key}}
	if before.equal(rules) {
		// A role without rules came or went.
		return out
	}
	for name := range p.byRole[key] {
		audience := p.bindings[name].audience
		if audience.nobody() {
			continue
		}
		out.changes = append(out.changes, change{
			namespace: name.Namespace,
			before:    share{audience: audience, rules: before}, after: share{audience: audience, rules: rules},
		})
	}
	return out
}

// setBinding takes note of a binding; nil is for one that is gone.
func (p *policy) setBinding(key objectKey, now *binding) event {
	before := p.bindings[key]
	if before != nil && now != nil && before.role == now.role && before.audience.equal(now.audience) {
		return event{}
	}
	if before != nil {
		remove(p.byRole, before.role, key)
		remove(p.byNamespace, key.Namespace, key)
		delete(p.bindings, key)
	}
	if now != nil {
		insert(p.byRole, now.role, key)
		insert(p.byNamespace, key.Namespace, key)
		p.bindings[key] = now
	}
	out := change{namespace: key.Namespace, before: p.shareOf(before), after: p.shareOf(now)}
	if out.before.rules == nil && out.after.rules == nil {
		return event{}
	}
	return event{changes: []change{out}}
}

func (p *policy) shareOf(b *binding) share {
	if b == nil || b.audience.nobody() {
		return share{}
	}
	return share{audience: b.audience, rules: p.roles[b.role]}
}

// replaceRoles takes note of all Roles or all ClusterRoles.
func (p *policy) replaceRoles(clusterScoped bool, now map[objectKey]*ruleSet) event {
	var out event
	for key := range p.roles {
		if _, there := now[key]; !there && (key.Namespace == "") == clusterScoped {
			out.add(p.setRole(key, nil))
		}
	}
	for key, rules := range now {
		out.add(p.setRole(key, rules))
	}
	return out
}

// replaceBindings takes note of all RoleBindings or all ClusterRoleBindings.
func (p *policy) replaceBindings(clusterScoped bool, now map[objectKey]*binding) event {
	var out event
	for key := range p.bindings {
		if _, there := now[key]; !there && (key.Namespace == "") == clusterScoped {
			out.add(p.setBinding(key, nil))
		}
	}
	for key, b := range now {
		out.add(p.setBinding(key, b))
	}
	return out
}

// rules returns the rules that an account has everywhere, and those that it has
// in a namespace unless that is empty.
func (p *policy) rules(account types.NamespacedName, namespace string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, in := range sets.List(sets.New("", namespace)) {
		for key := range p.byNamespace[in] {
			out = append(out, p.shareOf(p.bindings[key]).of(account).list()...)
		}
	}
	return out
}

func insert[K comparable](index map[K]sets.Set[objectKey], at K, key objectKey) {
	if index[at] == nil {
		index[at] = sets.New[objectKey]()
	}
	index[at].Insert(key)
}

func remove[K comparable](index map[K]sets.Set[objectKey], at K, key objectKey) {
	index[at].Delete(key)
	if index[at].Len() == 0 {
		delete(index, at)
	}
}
