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

// ObjectKey identifies a role or a binding. The Namespace of a cluster-scoped object is empty.
type ObjectKey struct{ Kind, Namespace, Name string }

// String returns, for example, "ClusterRole x" or "Role ns/x".
func (k ObjectKey) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// object is a role or binding to deliver.
type object struct {
	ObjectKey
	// roleRef is set for bindings.
	roleRef *rbacv1.RoleRef
	// head is the manifest without its content.
	head []byte
	// content is nil for a read-only object, whose manifest has a name only.
	content *content
}

func newObject(key ObjectKey, roleRef *rbacv1.RoleRef, content *content) *object {
	head := encode(manifest{
		APIVersion: rbacv1.SchemeGroupVersion.String(),
		Kind:       key.Kind,
		Metadata:   metadata{Name: key.Name, Namespace: key.Namespace},
		RoleRef:    roleRef,
	})
	return &object{ObjectKey: key, roleRef: roleRef, head: head, content: content}
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

// add adds a role or binding, or merges the rules or subjects into an existing one. All
// parts of a binding must have the same roleRef. It does nothing once the budget is exceeded.
func (r *renderer) add(key ObjectKey, roleRef *rbacv1.RoleRef, part *content) {
	if r.budget.exceeded() {
		return
	}
	if known := r.byKey[key]; known != nil {
		known.content = known.content.with(part)
		return
	}
	added := newObject(key, roleRef, part)
	r.byKey[key] = added
	r.byKind[key.Kind] = append(r.byKind[key.Kind], added)
	r.budget.bytes += added.sizeBytes()
}

// inOrder returns all objects in the order of the manifests.
func (r *renderer) inOrder() []*object {
	out := make([]*object, 0, len(r.byKey))
	for _, kind := range kindsInOrder {
		out = append(out, r.byKind[kind]...)
	}
	return out
}

// missingRoles returns the roles that bindings refer to and that are not among the
// objects, without duplicates, in the order of the bindings.
func (r *renderer) missingRoles() []ObjectKey {
	var out []ObjectKey
	listed := map[ObjectKey]bool{}
	for _, kind := range []string{kindClusterRoleBinding, kindRoleBinding} {
		for _, binding := range r.byKind[kind] {
			role := ObjectKey{Kind: binding.roleRef.Kind, Name: binding.roleRef.Name}
			if role.Kind == kindRole {
				role.Namespace = binding.Namespace
			}
			if r.byKey[role] == nil && !listed[role] {
				listed[role] = true
				out = append(out, role)
			}
		}
	}
	return out
}
