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

// What is left out becomes part of a condition, which a selector that matches
// thousands of namespaces must not fill.
const (
	// namesInReason bounds how many namespaces one reason lists.
	namesInReason = 10
	// maxObstacles bounds how many parts of the spec one binding names that are in its way.
	maxObstacles = 10
)

// claimBindings reserves the names of bindings by namespace before any binding by
// selector can take them. Otherwise whoever labels a namespace of the managed
// cluster could put a binding out of effect.
func (r *renderer) claimBindings(bindings []v1alpha1.RoleBinding) {
	for i, binding := range bindings {
		if binding.NamespaceSelector != nil {
			continue
		}
		key := objectKey{kind: kindRoleBinding, namespace: binding.Namespace, name: r.nameOr(binding.Name)}
		if _, taken := r.names[key]; !taken {
			r.names[key] = claim{path: specPath.Child("roleBindings").Index(i).String(), roleRef: r.roleRef(binding.RoleRef)}
		}
	}
}

func (r *renderer) roleBinding(binding *v1alpha1.RoleBinding, fldPath *field.Path) {
	ref := binding.RoleRef
	r.requireKind(ref.Kind, fldPath.Child("roleRef", "kind"), kindClusterRole, kindRole)
	if group, name := ptr.Deref(ref.APIGroup, ""), ptr.Deref(ref.Name, ""); (group == "") != (name == "") {
		r.require(group, fldPath.Child("roleRef", "apiGroup"))
		r.require(name, fldPath.Child("roleRef", "name"))
	}
	namespaces := r.namespaces(binding.Namespace, binding.NamespaceSelector, fldPath)
	subjects := r.subjects(binding.Subject, binding.Subjects, fldPath)
	content := newSubjects(subjects)

	own := claim{path: fldPath.String(), roleRef: r.roleRef(ref)}
	var inTheWay obstacles
	for _, namespace := range namespaces {
		key := objectKey{kind: kindRoleBinding, namespace: namespace, name: r.nameOr(binding.Name)}
		// A binding holds its name whether or not it has subjects at the moment. Accounts
		// come and go; the role that a binding refers to cannot be changed.
		holder, taken := r.names[key]
		switch {
		case !taken:
			r.names[key] = own
		case binding.NamespaceSelector == nil && holder != own:
			r.errs = append(r.errs, field.Duplicate(fldPath.Child("name"), key.name))
			continue
		case holder.roleRef != own.roleRef:
			inTheWay.add(holder, namespace)
			continue
		}
		if len(subjects) > 0 {
			r.objects.add(key, &own.roleRef, content)
		}
	}
	for _, reason := range inTheWay.reasons(r.nameOr(binding.Name)) {
		r.leaveOut(fldPath.Child("namespaceSelector"), reason)
	}
}

// roleRef completes the reference of a RoleBinding: without a name it is to the
// role that the ClusterPermission itself delivers.
func (r *renderer) roleRef(given v1alpha1.RoleRef) rbacv1.RoleRef {
	return rbacv1.RoleRef{
		APIGroup: cmp.Or(ptr.Deref(given.APIGroup, ""), rbacv1.GroupName),
		Kind:     given.Kind,
		Name:     r.nameOr(ptr.Deref(given.Name, "")),
	}
}

// obstacle is another part of the spec that holds the name of a RoleBinding in
// some namespaces, for another role.
type obstacle struct {
	holder     claim
	namespaces []string
}

// obstacles keep the order in which they came.
type obstacles struct {
	inOrder  []*obstacle
	byHolder map[claim]*obstacle
	// more is how many namespaces further obstacles are in.
	more int
}

func (o *obstacles) add(holder claim, namespace string) {
	known := o.byHolder[holder]
	if known == nil {
		if len(o.inOrder) == maxObstacles {
			o.more++
			return
		}
		if o.byHolder == nil {
			o.byHolder = map[claim]*obstacle{}
		}
		known = &obstacle{holder: holder}
		o.byHolder[holder] = known
		o.inOrder = append(o.inOrder, known)
	}
	known.namespaces = append(known.namespaces, namespace)
}

// reasons say to a person what is in the way of the RoleBinding of a name.
func (o *obstacles) reasons(name string) []string {
	var out []string
	for _, obstacle := range o.inOrder {
		out = append(out, obstacle.reason(name))
	}
	if o.more > 0 {
		out = append(out, fmt.Sprintf("in %d more namespaces a RoleBinding %s of another part of the spec is in the way", o.more, name))
	}
	return out
}

func (o *obstacle) reason(name string) string {
	in := "namespace " + o.namespaces[0]
	switch more := len(o.namespaces) - namesInReason; {
	case more > 0:
		in = fmt.Sprintf("namespaces %s and %d more", strings.Join(o.namespaces[:namesInReason], ", "), more)
	case len(o.namespaces) > 1:
		in = "namespaces " + strings.Join(o.namespaces, ", ")
	}
	return fmt.Sprintf("in %s the RoleBinding %s of %s is in the way, which binds %s %s",
		in, name, o.holder.path, o.holder.roleRef.Kind, o.holder.roleRef.Name)
}
