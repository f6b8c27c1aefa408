package visibility

import (
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// policy is the RBAC of one cluster. It may be used concurrently.
type policy struct {
	mu    sync.RWMutex
	index *rbac.Index[*ruleSet]
}

func newPolicy() *policy { return &policy{index: rbac.NewIndex[*ruleSet]()} }

// change is the effect of an object on a policy.
type change struct {
	// concerned are the subjects whose Scope may have changed.
	concerned []rbac.Subject
	// role is the role whose rules have changed, if any.
	role *rbac.Key
}

// apply stores an RBAC object, or removes it if gone is set. known is false for other
// kinds of objects.
func (p *policy) apply(object any, gone bool) (result change, known bool) {
	o, known := rbac.FromTyped(object)
	switch {
	case !known:
	case !o.IsRole() && gone:
		result = p.setBinding(o.Key, nil)
	case !o.IsRole():
		result = p.setBinding(o.Key, o.Binding())
	case gone:
		result = p.setRole(o.Key, nil)
	default:
		rules := newRuleSet(o.Rules)
		if role, is := object.(*rbacv1.ClusterRole); is && rules != nil && role.Labels[DefaultRoleLabel] == defaultRole {
			rules = rules.asDefault()
		}
		result = p.setRole(o.Key, rules)
	}
	return result, known
}

// setRole stores the rules of a role. Nil rules grant nothing.
func (p *policy) setRole(key rbac.Key, rules *ruleSet) change {
	p.mu.Lock()
	defer p.mu.Unlock()
	changes, changed := p.index.SetRole(key, rules)
	if !changed {
		return change{}
	}
	result := change{role: &key}
	for _, c := range changes {
		result.concerned = append(result.concerned, c.Before.Subjects...)
	}
	return result
}

// setBinding stores a binding, or removes it if it is nil.
func (p *policy) setBinding(key rbac.Key, b *rbac.Binding) change {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, _ := p.index.SetBinding(key, b)
	return change{concerned: slices.Concat(c.Before.Subjects, c.After.Subjects)}
}

// role returns the rules of a role. Nil rules grant nothing.
func (p *policy) role(key rbac.Key) *ruleSet {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.index.Role(key)
}
