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
		key := objectKey{kind: kindRoleBinding, namespace: binding.Namespace, name: r.nameOr(binding.Name)}
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
		key := objectKey{kind: kindRoleBinding, namespace: namespace, name: r.nameOr(binding.Name)}
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
			r.objects.add(key, &own.roleRef, content)
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

// conflict is another part of the spec that defines a RoleBinding of the same name for
// another role in some namespaces.
type conflict struct {
	holder     claim
	namespaces []string
}

// conflicts contains conflicts in the order in which they were added.
type conflicts struct {
	inOrder  []*conflict
	byHolder map[claim]*conflict
	// more is the number of namespaces with conflicts beyond maxConflicts.
	more int
}

func (c *conflicts) add(holder claim, namespace string) {
	known := c.byHolder[holder]
	if known == nil {
		if len(c.inOrder) == maxConflicts {
			c.more++
			return
		}
		if c.byHolder == nil {
			c.byHolder = map[claim]*conflict{}
		}
		known = &conflict{holder: holder}
		c.byHolder[holder] = known
		c.inOrder = append(c.inOrder, known)
	}
	known.namespaces = append(known.namespaces, namespace)
}

// reasons describes the conflicts of the RoleBinding of a name.
func (c *conflicts) reasons(name string) []string {
	var out []string
	for _, conflict := range c.inOrder {
		out = append(out, conflict.reason(name))
	}
	if c.more > 0 {
		out = append(out, fmt.Sprintf("RoleBinding %s in %d more namespaces conflicts with other parts of the spec", name, c.more))
	}
	return out
}

func (c *conflict) reason(name string) string {
	in := "namespace " + c.namespaces[0]
	switch more := len(c.namespaces) - namesInReason; {
	case more > 0:
		in = fmt.Sprintf("namespaces %s and %d more", strings.Join(c.namespaces[:namesInReason], ", "), more)
	case len(c.namespaces) > 1:
		in = "namespaces " + strings.Join(c.namespaces, ", ")
	}
	return fmt.Sprintf("RoleBinding %s in %s conflicts with %s, which binds %s %s",
		name, in, c.holder.path, c.holder.roleRef.Kind, c.holder.roleRef.Name)
}
