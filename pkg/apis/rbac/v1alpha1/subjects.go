package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
)

// A subject of this group and kind refers to the ServiceAccount of a
// ManagedServiceAccount on the managed cluster.
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

// Subjects returns the subjects of all bindings.
func (s *ClusterPermissionSpec) Subjects() []rbacv1.Subject {
	var all []rbacv1.Subject
	if binding := s.ClusterRoleBinding; binding != nil {
		all = append(all, BindingSubjects(binding.Subject, binding.Subjects)...)
	}
	for _, binding := range ptr.Deref(s.ClusterRoleBindings, nil) {
		all = append(all, BindingSubjects(binding.Subject, binding.Subjects)...)
	}
	for _, binding := range ptr.Deref(s.RoleBindings, nil) {
		all = append(all, BindingSubjects(binding.Subject, binding.Subjects)...)
	}
	return all
}
