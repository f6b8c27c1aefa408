package clusterpermission

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	kindRole               = "Role"
	kindClusterRole        = "ClusterRole"
	kindRoleBinding        = "RoleBinding"
	kindClusterRoleBinding = "ClusterRoleBinding"
)

// kindsInOrder is how the managed cluster should get the objects: a role before
// the bindings that refer to it, cluster-scoped before namespaced.
var kindsInOrder = []string{kindClusterRole, kindClusterRoleBinding, kindRole, kindRoleBinding}

type objectKey struct {
	kind, namespace, name string
}

// object is a role or binding to deliver.
type object struct {
	objectKey
	// rules are those of a role. They are nil, rather than empty, for an object
	// that has none.
	rules []rule
	// roleRef and subjects are those of a binding.
	roleRef  *rbacv1.RoleRef
	subjects []subject
}

// objects are roles and bindings, each once. Those of one kind keep the order in
// which they came. The objects of one selector share their rules and subjects,
// which are clipped so that what is added to one object stays with it.
type objects struct {
	byKey  map[objectKey]*object
	byKind map[string][]*object
}

func newObjects() objects {
	return objects{byKey: map[objectKey]*object{}, byKind: map[string][]*object{}}
}

// grant adds a role, or the rules to it that it does not have yet.
func (o objects) grant(key objectKey, rules []rule) {
	role, found := o.get(key)
	if !found {
		role.rules = slices.Clip(rules)
		return
	}
	for _, added := range rules {
		if !slices.ContainsFunc(role.rules, added.equal) {
			role.rules = append(role.rules, added)
		}
	}
}

// bind adds a binding, or the subjects to it that it does not have yet. A binding
// that is there already must have the same roleRef.
func (o objects) bind(key objectKey, roleRef *rbacv1.RoleRef, subjects []subject) {
	binding, found := o.get(key)
	if !found {
		binding.roleRef, binding.subjects = roleRef, slices.Clip(subjects)
		return
	}
	for _, added := range subjects {
		if !slices.Contains(binding.subjects, added) {
			binding.subjects = append(binding.subjects, added)
		}
	}
}

func (o objects) get(key objectKey) (obj *object, found bool) {
	if obj = o.byKey[key]; obj != nil {
		return obj, true
	}
	obj = &object{objectKey: key}
	o.byKey[key] = obj
	o.byKind[key.kind] = append(o.byKind[key.kind], obj)
	return obj, false
}

// inOrder are all objects in the order in which the managed cluster should get them.
func (o objects) inOrder() []*object {
	out := make([]*object, 0, len(o.byKey))
	for _, kind := range kindsInOrder {
		out = append(out, o.byKind[kind]...)
	}
	return out
}

// missingRoles are the roles that bindings refer to and that are not among the
// objects; each once, in the order of the bindings.
func (o objects) missingRoles() []objectKey {
	var out []objectKey
	listed := map[objectKey]bool{}
	for _, kind := range []string{kindClusterRoleBinding, kindRoleBinding} {
		for _, binding := range o.byKind[kind] {
			role := objectKey{kind: binding.roleRef.Kind, name: binding.roleRef.Name}
			if role.kind == kindRole {
				role.namespace = binding.namespace
			}
			if o.byKey[role] == nil && !listed[role] {
				listed[role] = true
				out = append(out, role)
			}
		}
	}
	return out
}
