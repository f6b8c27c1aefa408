package v1alpha1

import (
	"iter"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// A subject of this group and kind refers to the ServiceAccount of a ManagedServiceAccount on the managed cluster.
const (
	ManagedServiceAccountGroup = v1beta1.GroupName
	ManagedServiceAccountKind  = "ManagedServiceAccount"
)

// BindingSubjects returns the subjects of a binding with the fields subject and subjects. As upstream, it ignores
// subject if subjects is not empty. An empty subject is absent: older typed clients always send one.
func BindingSubjects(subject *rbacv1.Subject, subjects []rbacv1.Subject) []rbacv1.Subject {
	if len(subjects) > 0 || subject == nil || *subject == (rbacv1.Subject{}) {
		return subjects
	}
	return []rbacv1.Subject{*subject}
}

// AllClusterRoleBindings returns clusterRoleBinding and clusterRoleBindings, with their paths.
func (s *ClusterPermissionSpec) AllClusterRoleBindings() iter.Seq2[*field.Path, *ClusterRoleBinding] {
	return func(yield func(*field.Path, *ClusterRoleBinding) bool) {
		path := field.NewPath("spec")
		if s.ClusterRoleBinding != nil && !yield(path.Child("clusterRoleBinding"), s.ClusterRoleBinding) {
			return
		}
		for i := range ptr.Deref(s.ClusterRoleBindings, nil) {
			if !yield(path.Child("clusterRoleBindings").Index(i), &(*s.ClusterRoleBindings)[i]) {
				return
			}
		}
	}
}

// Subjects returns the subjects of all bindings.
func (s *ClusterPermissionSpec) Subjects() []rbacv1.Subject {
	var all []rbacv1.Subject
	for _, binding := range s.AllClusterRoleBindings() {
		all = append(all, BindingSubjects(binding.Subject, binding.Subjects)...)
	}
	for _, binding := range ptr.Deref(s.RoleBindings, nil) {
		all = append(all, BindingSubjects(binding.Subject, binding.Subjects)...)
	}
	return all
}
