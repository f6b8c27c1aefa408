package visibility

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// compiled contains the permissions that a policy grants to an identity.
type compiled struct {
	grants  *grants
	anyView bool
	views   map[string]struct{}
	// fingerprint is equal only for the same permissions.
	fingerprint fingerprint
}

// compile returns the permissions that a policy grants to any of the subjects. elsewhere
// returns the rules of bound roles that the policy does not contain. It may be nil.
func (p *policy) compile(subjects []rbac.Subject, elsewhere func(rbac.Key) *ruleSet) *compiled {
	return compileRules(p.gather(subjects, elsewhere))
}

// compileRules returns the permissions that rules grant by namespace. Rules without a namespace are cluster-wide.
func compileRules(byNamespace map[string][]*ruleSet) *compiled {
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

// gather returns the rules of the subjects by namespace. Rules without a namespace are
// cluster-wide.
func (p *policy) gather(subjects []rbac.Subject, elsewhere func(rbac.Key) *ruleSet) map[string][]*ruleSet {
	byNamespace := map[string][]*ruleSet{}
	p.mu.RLock()
	defer p.mu.RUnlock()
	for key, b := range p.index.BindingsOf(subjects) {
		rules := p.index.Role(b.Role)
		if rules == nil && elsewhere != nil {
			rules = elsewhere(b.Role)
		}
		if rules != nil {
			byNamespace[key.Namespace] = append(byNamespace[key.Namespace], rules)
		}
	}
	return byNamespace
}

// compileHub returns the permissions of an identity by the RBAC of the hub.
func (p *policy) compileHub(identity user.Info) *allowed {
	// The API server does not authorize its privileged group.
	if slices.Contains(identity.GetGroups(), user.SystemPrivilegedGroup) {
		return &allowed{hub: &grants{everything: true}, anyView: true}
	}
	c := p.compile(hubSubjects(identity), nil)
	return &allowed{hub: c.grants, anyView: c.anyView, views: c.views, fingerprint: c.fingerprint}
}

// Static returns the Scope of an identity on a hub with only the given Roles,
// ClusterRoles, RoleBindings and ClusterRoleBindings. It returns an error for an object of
// another kind.
func Static(objects []runtime.Object, identity user.Info) (Scope, error) {
	p := newPolicy()
	for _, object := range objects {
		if _, known := p.apply(object, false); !known {
			return Scope{}, fmt.Errorf("%T is not an RBAC object", object)
		}
	}
	return Scope{allowed: p.compileHub(identity).numbered()}, nil
}
