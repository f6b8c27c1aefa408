package clusterpermission

import (
	"cmp"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// The reasons are part of a condition. These limits keep it short if a selector matches
// thousands of namespaces.
const (
	// namesInReason bounds the namespaces in one reason.
	namesInReason = 10
	// maxConflicts bounds the reasons for one binding.
	maxConflicts = 10
)

// claimBindings reserves the names of bindings with a namespace before those with a
// selector. Otherwise a user could disable a binding by labeling a namespace of the
// managed cluster.
func (r *renderer) claimBindings(bindings []v1alpha1.RoleBinding) {
	for i, binding := range bindings {
		if binding.NamespaceSelector != nil {
			continue
		}
		key := ObjectKey{Kind: kindRoleBinding, Namespace: binding.Namespace, Name: r.nameOr(binding.Name)}
		if _, claimed := r.names[key]; !claimed {
			r.names[key] = claim{path: specPath.Child("roleBindings").Index(i).String(), roleRef: r.roleRef(binding.RoleRef)}
		}
	}
}

func (r *renderer) roleBinding(binding *v1alpha1.RoleBinding, fldPath *field.Path) {
	namespaces := r.namespaces(binding.Namespace, binding.NamespaceSelector, fldPath)
	subjects := r.subjects(binding.Subject, binding.Subjects, fldPath)
	content := newSubjects(subjects)

	own := claim{path: fldPath.String(), roleRef: r.roleRef(binding.RoleRef)}
	var found conflicts
	for _, namespace := range namespaces {
		key := ObjectKey{Kind: kindRoleBinding, Namespace: namespace, Name: r.nameOr(binding.Name)}
		// A binding without subjects reserves its name too: accounts may appear later, and
		// the roleRef of a binding is immutable.
		holder, claimed := r.names[key]
		switch {
		case !claimed:
			r.names[key] = own
		case holder.roleRef != own.roleRef:
			found.add(holder, namespace)
			continue
		}
		if len(subjects) > 0 {
			r.add(key, &own.roleRef, content)
		}
	}
	for _, reason := range found.reasons(r.nameOr(binding.Name)) {
		r.leaveOut(fldPath.Child("namespaceSelector"), reason)
	}
}

// roleRef returns the roleRef of a RoleBinding on the managed cluster. Without a name it
// refers to the role that the ClusterPermission defines.
func (r *renderer) roleRef(ref v1alpha1.RoleRef) rbacv1.RoleRef {
	return rbacv1.RoleRef{
		APIGroup: cmp.Or(ptr.Deref(ref.APIGroup, ""), rbacv1.GroupName),
		Kind:     ref.Kind,
		Name:     r.nameOr(ptr.Deref(ref.Name, "")),
	}
}

// conflicts contains the other parts of the spec that define a RoleBinding of the same name for another role.
type conflicts struct {
	holders []claim
	// namespaces contains the namespaces with a conflict with each holder.
	namespaces map[claim][]string
	// more is the number of namespaces with conflicts beyond maxConflicts.
	more int
}

func (c *conflicts) add(holder claim, namespace string) {
	if c.namespaces[holder] == nil {
		if len(c.holders) == maxConflicts {
			c.more++
			return
		}
		c.holders = append(c.holders, holder)
	}
	if c.namespaces == nil {
		c.namespaces = map[claim][]string{}
	}
	c.namespaces[holder] = append(c.namespaces[holder], namespace)
}

// reasons describes the conflicts of the RoleBinding of a name.
func (c *conflicts) reasons(name string) []string {
	var out []string
	for _, holder := range c.holders {
		namespaces := c.namespaces[holder]
		in := "namespace " + namespaces[0]
		switch more := len(namespaces) - namesInReason; {
		case more > 0:
			in = fmt.Sprintf("namespaces %s and %d more", strings.Join(namespaces[:namesInReason], ", "), more)
		case len(namespaces) > 1:
			in = "namespaces " + strings.Join(namespaces, ", ")
		}
		out = append(out, fmt.Sprintf("RoleBinding %s in %s conflicts with %s, which binds %s %s",
			name, in, holder.path, holder.roleRef.Kind, holder.roleRef.Name))
	}
	if c.more > 0 {
		out = append(out, fmt.Sprintf("RoleBinding %s in %d more namespaces conflicts with other parts of the spec", name, c.more))
	}
	return out
}
