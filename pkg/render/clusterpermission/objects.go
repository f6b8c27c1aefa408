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

// kindsInOrder is the order of the manifests: roles before the bindings that refer to
// them, cluster-scoped objects before namespaced ones.
var kindsInOrder = []string{kindClusterRole, kindClusterRoleBinding, kindRole, kindRoleBinding}

type objectKey struct {
	kind, namespace, name string
}

// object is a role or binding to deliver.
type object struct {
	objectKey
	// roleRef is set for bindings.
	roleRef *rbacv1.RoleRef
	// head is the manifest without its content.
	head []byte
	// content is nil for a read-only object, whose manifest has a name only.
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

// objects contains unique roles and bindings. Objects of one kind keep the order in
// which they were added.
type objects struct {
	byKey  map[objectKey]*object
	byKind map[string][]*object
	budget *budget
}

func newObjects(budget *budget) objects {
	return objects{byKey: map[objectKey]*object{}, byKind: map[string][]*object{}, budget: budget}
}

// add adds a role or binding, or merges the rules or subjects into an existing one. All
// parts of a binding must have the same roleRef. It does nothing once the budget is exceeded.
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

// inOrder returns all objects in the order of the manifests.
func (o objects) inOrder() []*object {
	out := make([]*object, 0, len(o.byKey))
	for _, kind := range kindsInOrder {
		out = append(out, o.byKind[kind]...)
	}
	return out
}

// missingRoles returns the roles that bindings refer to and that are not among the
// objects, without duplicates, in the order of the bindings.
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
