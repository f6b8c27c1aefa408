package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// SetDefaults_ManagedServiceAccountBinding sets the API group of subjects as RBAC does.
func SetDefaults_ManagedServiceAccountBinding(binding *ManagedServiceAccountBinding) {
	for i := range binding.Spec.Subjects {
		subject := &binding.Spec.Subjects[i]
		if subject.APIGroup == "" && (subject.Kind == rbacv1.UserKind || subject.Kind == rbacv1.GroupKind) {
			subject.APIGroup = rbacv1.GroupName
		}
	}
}
