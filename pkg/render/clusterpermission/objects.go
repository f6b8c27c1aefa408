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
	// roleRef is that of a binding.
	roleRef *rbacv1.RoleRef
	// head is the manifest without its content.
	head []byte
	// content is nil for an object that is written by name only.
	content *content
}

func newObject(key objectKey, roleRef *rbacv1.RoleRef, content *content) *object {
	head := encode(manifest{
		APIVersion: rbacv1.SchemeGroupVersion.String(),
		Kind:       key.kind,
		Metadata:   metadata{Name: key.name, Namespace: key.namespace},
		RoleRef:    roleRef,
	})
	return &object{objectKey: key, roleRef: roleRef, head: head, content: content}
}

func (o *object) sizeBytes() int64 {
	size := len(o.head)
	if o.content != nil {
		size += len(o.content.encode())
	}
	return int64(size)
}

func (o *object) manifest() []byte {
	if o.content == nil {
		return o.head
	}
	end := len(o.head) - len("}")
	return slices.Concat(o.head[:end], o.content.encode(), o.head[end:])
}

// objects are roles and bindings, each once. Those of one kind keep the order in
// which they came.
type objects struct {
	byKey  map[objectKey]*object
	byKind map[string][]*object
	budget *budget
}

func newObjects(budget *budget) objects {
	return objects{byKey: map[objectKey]*object{}, byKind: map[string][]*object{}, budget: budget}
}

// add adds a role or binding, or the rules or subjects to it that it does not have
// yet. The roleRef is that of a binding; one that is there already must have the
// same. Nothing is added once the budget is exceeded.
func (o objects) add(key objectKey, roleRef *rbacv1.RoleRef, part *content) {
	if o.budget.exceeded() {
		return
	}
	if known := o.byKey[key]; known != nil {
		known.content = known.content.with(part)
		return
	}
	added := newObject(key, roleRef, part)
	o.byKey[key] = added
	o.byKind[key.kind] = append(o.byKind[key.kind], added)
	o.budget.bytes += added.sizeBytes()
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
