package visibility

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
)

// compiled is what a policy grants to an identity.
type compiled struct {
	grants  *grants
	anyView bool
	views   map[string]struct{}
	// fingerprint is equal only for what grants the same.
	fingerprint fingerprint
}

// compile gathers what a policy grants to some subjects. A role that the policy does
// not have is looked up by elsewhere, unless that is nil; without one, a binding to
// it grants nothing.
func (p *policy) compile(subjects []subject, elsewhere func(objectKey) *ruleSet) *compiled {
	byNamespace := p.gather(subjects, elsewhere)
	c := &compiled{grants: &grants{namespaces: make(map[string][]*ruleSet, len(byNamespace))}, views: map[string]struct{}{}}
	digest := newDigest()
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		rules := byNamespace[namespace]
		slices.SortFunc(rules, func(a, b *ruleSet) int { return bytes.Compare(a.fingerprint[:], b.fingerprint[:]) })
		rules = slices.CompactFunc(rules, func(a, b *ruleSet) bool { return a.fingerprint == b.fingerprint })
		digest.bytes([]byte(namespace))
		digest.number(len(rules))
		for _, set := range rules {
			digest.bytes(set.fingerprint[:])
			if !set.view {
				continue
			}
			if namespace == "" {
				c.anyView = true
			} else {
				c.views[namespace] = struct{}{}
			}
		}
		if namespace == "" {
			c.grants.wide = joined(rules)
		} else {
			c.grants.namespaces[namespace] = rules
		}
	}
	c.fingerprint = digest.sum()
	return c
}

// gather finds the rules of the subjects by namespace; those of no namespace are cluster-wide.
func (p *policy) gather(subjects []subject, elsewhere func(objectKey) *ruleSet) map[string][]*ruleSet {
	byNamespace := map[string][]*ruleSet{}
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, s := range subjects {
		for key, b := range p.bySubject[s] {
			rules, found := p.roles[b.role]
			if !found && elsewhere != nil {
				rules = elsewhere(b.role)
			}
			if rules != nil {
				byNamespace[key.namespace] = append(byNamespace[key.namespace], rules)
			}
		}
	}
	return byNamespace
}

// compileHub is what the RBAC of the hub allows to an identity.
func (p *policy) compileHub(identity user.Info) *allowed {
	// The API server asks nobody about its privileged group.
	if slices.Contains(identity.GetGroups(), user.SystemPrivilegedGroup) {
		return &allowed{hub: &grants{everything: true}, anyView: true}
	}
	c := p.compile(hubSubjects(identity), nil)
	return &allowed{hub: c.grants, anyView: c.anyView, views: c.views, fingerprint: c.fingerprint}
}

// Static is the Scope of an identity on a hub that has the given Roles,
// ClusterRoles, RoleBindings and ClusterRoleBindings and nothing else. It follows no
// changes. An object of another kind is an error.
func Static(objects []runtime.Object, identity user.Info) (Scope, error) {
	p := newPolicy()
	for _, object := range objects {
		if _, known := p.apply(object, false); !known {
			return Scope{}, fmt.Errorf("%T is no RBAC", object)
		}
	}
	return Scope{allowed: p.compileHub(identity).numbered()}, nil
}

// change is what an object changes.
type change struct {
	// concerned are those whose scope may have changed.
	concerned []subject
	// role is the role whose rules have changed, if any.
	role *objectKey
}

// apply takes in an object of RBAC, or that it is gone. known is false for any
// other kind of object.
func (p *policy) apply(object any, gone bool) (result change, known bool) {
	setRole := func(key objectKey, set *ruleSet) change {
		if gone {
			set = nil
		}
		changed, concerned := p.setRole(key, set)
		if !changed {
			return change{}
		}
		return change{concerned: concerned, role: &key}
	}
	setBinding := func(key objectKey, ref rbacv1.RoleRef, subjects []rbacv1.Subject) change {
		var now *binding
		if !gone {
			now = newBinding(key.namespace, ref, subjects)
		}
		return change{concerned: p.setBinding(key, now)}
	}
	switch o := object.(type) {
	case *rbacv1.Role:
		return setRole(objectKey{kindRole, o.Namespace, o.Name}, newRuleSet(o.Rules)), true
	case *rbacv1.ClusterRole:
		return setRole(objectKey{kind: kindClusterRole, name: o.Name}, newClusterRuleSet(o)), true
	case *rbacv1.RoleBinding:
		return setBinding(objectKey{kindRoleBinding, o.Namespace, o.Name}, o.RoleRef, o.Subjects), true
	case *rbacv1.ClusterRoleBinding:
		return setBinding(objectKey{kind: kindClusterRoleBinding, name: o.Name}, o.RoleRef, o.Subjects), true
	}
	return change{}, false
}
