package accessreview

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// policy is the watched part of the RBAC of a cluster that concerns ServiceAccounts.
type policy struct {
	index *rbac.Index[*ruleSet]
}

func newPolicy() *policy { return &policy{index: rbac.NewIndex[*ruleSet]()} }

// change is the effect of an event on one binding.
type change = rbac.Change[*ruleSet]

// event is a change of the policy.
type event struct {
	changes []change
	// roles are the roles whose rules have changed.
	roles []rbac.Key
}

func (e *event) add(other event) {
	e.changes = append(e.changes, other.changes...)
	e.roles = append(e.roles, other.roles...)
}

func (e event) empty() bool { return len(e.changes) == 0 && len(e.roles) == 0 }

// set stores an object, or removes it if it is deleted.
func (p *policy) set(o rbac.Object, gone bool) event {
	switch {
	case o.IsRole() && gone:
		return p.setRole(o.Key, nil)
	case o.IsRole():
		return p.setRole(o.Key, &ruleSet{rules: o.Rules})
	case gone:
		return p.setBinding(o.Key, nil)
	}
	return p.setBinding(o.Key, o.Binding())
}

// replace stores all objects of a kind, and removes all others of the kind.
func (p *policy) replace(kind string, objects []rbac.Object) event {
	exist := sets.New[rbac.Key]()
	for _, o := range objects {
		exist.Insert(o.Key)
	}
	var out event
	for key := range p.index.Roles() {
		if key.Kind == kind && !exist.Has(key) {
			out.add(p.setRole(key, nil))
		}
	}
	for key := range p.index.Bindings() {
		if key.Kind == kind && !exist.Has(key) {
			out.add(p.setBinding(key, nil))
		}
	}
	for _, o := range objects {
		out.add(p.set(o, false))
	}
	return out
}

// setRole stores the rules of a role, or removes the role if rules is nil.
func (p *policy) setRole(key rbac.Key, rules *ruleSet) event {
	before := p.index.Role(key)
	changes, changed := p.index.SetRole(key, rules)
	if !changed {
		return event{}
	}
	out := event{roles: []rbac.Key{key}}
	// A role without rules may have been created or deleted.
	if !before.Equal(rules) {
		out.changes = slices.DeleteFunc(changes, func(c change) bool { return len(c.Before.Subjects) == 0 })
	}
	return out
}

// setBinding stores a binding, or removes it if it is nil.
func (p *policy) setBinding(key rbac.Key, b *rbac.Binding) event {
	if b != nil {
		b.Subjects = slices.DeleteFunc(b.Subjects, func(s rbac.Subject) bool { return !concernsAccounts(s) })
	}
	c, _ := p.index.SetBinding(key, b)
	if grantsNothing(c.Before) && grantsNothing(c.After) {
		return event{}
	}
	return event{changes: []change{c}}
}

func grantsNothing(g rbac.Grant[*ruleSet]) bool { return g.Rules == nil || len(g.Subjects) == 0 }

// concernsAccounts reports whether a subject may be a ServiceAccount.
func concernsAccounts(s rbac.Subject) bool {
	if !s.Group {
		return strings.HasPrefix(s.Name, serviceaccount.ServiceAccountUsernamePrefix)
	}
	return s.Name == user.AllAuthenticated || s.Name == serviceaccount.AllServiceAccountsGroup || strings.HasPrefix(s.Name, serviceaccount.ServiceAccountGroupPrefix)
}

// subjectsOf returns the subjects of bindings that include an account.
func subjectsOf(account types.NamespacedName) []rbac.Subject {
	subjects := []rbac.Subject{{Name: UserName(account)}}
	for _, group := range Groups(account) {
		subjects = append(subjects, rbac.Subject{Group: true, Name: group})
	}
	return subjects
}

// rules returns the rules that an account has in all namespaces and, unless namespace is empty, the
// rules that it has in that namespace.
func (p *policy) rules(account types.NamespacedName, namespace string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for key, b := range p.index.BindingsOf(subjectsOf(account)) {
		if key.Namespace == "" || key.Namespace == namespace {
			out = append(out, p.index.Role(b.Role).list()...)
		}
	}
	return out
}

// allows reports whether RBAC grants a request to an account.
func (p *policy) allows(account types.NamespacedName, request Request) bool {
	for key, b := range p.index.BindingsOf(subjectsOf(account)) {
		if key.Namespace != "" && key.Namespace != request.Namespace {
			continue
		}
		if grantOf(p.index.Role(b.Role).list(), actionOf(request)).allows(request.Name) {
			return true
		}
	}
	return false
}
