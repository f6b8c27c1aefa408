package visibility

import (
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	kindRole               = "Role"
	kindClusterRole        = "ClusterRole"
	kindRoleBinding        = "RoleBinding"
	kindClusterRoleBinding = "ClusterRoleBinding"
)

// policy is the RBAC of one cluster, found by whom it concerns. It is kept up to
// date object by object; every change tells whose scope it may change.
type policy struct {
	mu        sync.RWMutex
	roles     map[objectKey]*ruleSet
	bindings  map[objectKey]*binding
	bySubject map[subject]map[objectKey]*binding
	byRole    map[objectKey]sets.Set[objectKey]
}

// objectKey names a role or a binding. The kind tells a ClusterRole from a Role
// and a ClusterRoleBinding from a RoleBinding.
type objectKey struct{ kind, namespace, name string }

type binding struct {
	role     objectKey
	subjects []subject
}

func newPolicy() *policy {
	return &policy{
		roles:     map[objectKey]*ruleSet{},
		bindings:  map[objectKey]*binding{},
		bySubject: map[subject]map[objectKey]*binding{},
		byRole:    map[objectKey]sets.Set[objectKey]{},
	}
}

// setRole stores what a role grants now, nil for nothing. changed is false if that
// is what it did before; concerned are those who are bound to it.
func (p *policy) setRole(key objectKey, rules *ruleSet) (changed bool, concerned []subject) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.roles[key]; before == rules || before != nil && rules != nil && before.fingerprint == rules.fingerprint {
		return false, nil
	}
	if rules == nil {
		delete(p.roles, key)
	} else {
		p.roles[key] = rules
	}
	return true, p.boundTo(key)
}

// setBinding stores a binding, nil if there is none any more. concerned are those
// whom it named or names now.
func (p *policy) setBinding(key objectKey, now *binding) (concerned []subject) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.bindings[key]
	if before != nil && now != nil && before.role == now.role && slices.Equal(before.subjects, now.subjects) {
		return nil
	}
	if before != nil {
		concerned = append(concerned, before.subjects...)
		for _, s := range before.subjects {
			if delete(p.bySubject[s], key); len(p.bySubject[s]) == 0 {
				delete(p.bySubject, s)
			}
		}
		if p.byRole[before.role].Delete(key); len(p.byRole[before.role]) == 0 {
			delete(p.byRole, before.role)
		}
		delete(p.bindings, key)
	}
	if now != nil {
		concerned = append(concerned, now.subjects...)
		p.bindings[key] = now
		for _, s := range now.subjects {
			if p.bySubject[s] == nil {
				p.bySubject[s] = map[objectKey]*binding{}
			}
			p.bySubject[s][key] = now
		}
		if p.byRole[now.role] == nil {
			p.byRole[now.role] = sets.New[objectKey]()
		}
		p.byRole[now.role].Insert(key)
	}
	return concerned
}

// boundTo are those who are bound to a role; the lock is held.
func (p *policy) boundTo(role objectKey) []subject {
	var concerned []subject
	for key := range p.byRole[role] {
		concerned = append(concerned, p.bindings[key].subjects...)
	}
	return concerned
}

// role tells what a role grants; nil for nothing.
func (p *policy) role(key objectKey) *ruleSet {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.roles[key]
}

// newBinding is a binding as the API server reads it; namespace is empty for a
// ClusterRoleBinding.
func newBinding(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) *binding {
	role := objectKey{kind: ref.Kind, name: ref.Name}
	if ref.Kind == kindRole {
		role.namespace = namespace
	}
	return &binding{role: role, subjects: boundSubjects(subjects, namespace)}
}
