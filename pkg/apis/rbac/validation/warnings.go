package validation

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// WarningsForClusterPermission returns warnings about parts of a valid ClusterPermission that probably have no effect.
func WarningsForClusterPermission(cp *rbac.ClusterPermission) []string {
	var warnings []string
	for fldPath, binding := range cp.Spec.AllClusterRoleBindings() {
		if binding.RoleRef == nil && !definesClusterRole(cp) {
			warnings = append(warnings, dangling(cp, kindClusterRole, fldPath))
		}
		warnings = append(warnings, warnSubjects(binding.Subject, binding.Subjects, fldPath)...)
	}
	for i := range ptr.Deref(cp.Spec.RoleBindings, nil) {
		binding, fldPath := &(*cp.Spec.RoleBindings)[i], specPath.Child("roleBindings").Index(i)
		if ptr.Deref(binding.RoleRef.Name, "") == "" {
			switch {
			case binding.RoleRef.Kind == kindClusterRole && !definesClusterRole(cp):
				warnings = append(warnings, dangling(cp, kindClusterRole, fldPath))
			case binding.RoleRef.Kind == kindRole && !definesRole(cp, binding.Namespace, binding.NamespaceSelector):
				warnings = append(warnings, dangling(cp, kindRole, fldPath))
			}
		}
		warnings = append(warnings, warnSubjects(binding.Subject, binding.Subjects, fldPath)...)
	}
	return warnings
}

func dangling(cp *rbac.ClusterPermission, kind string, fldPath *field.Path) string {
	return fmt.Sprintf("%s: this ClusterPermission does not define %s %q; the binding grants nothing unless the managed cluster has such a %s",
		fldPath.Child("roleRef"), kind, cp.Name, kind)
}

func definesClusterRole(cp *rbac.ClusterPermission) bool {
	return cp.Spec.ClusterRole != nil || slices.ContainsFunc(ptr.Deref(cp.Spec.RoleRefs, nil), func(ref v1alpha1.HubRoleRef) bool {
		return ref.Kind == kindClusterRole && ref.Name == cp.Name
	})
}

// definesRole returns true for selectors, since the namespaces that they match are unknown here.
func definesRole(cp *rbac.ClusterPermission, namespace string, selector *metav1.LabelSelector) bool {
	return slices.ContainsFunc(ptr.Deref(cp.Spec.Roles, nil), func(role v1alpha1.Role) bool {
		return selector != nil || role.NamespaceSelector != nil || role.Namespace == namespace
	}) || slices.ContainsFunc(ptr.Deref(cp.Spec.RoleRefs, nil), func(ref v1alpha1.HubRoleRef) bool {
		return ref.Kind == kindRole && ref.Name == cp.Name && (selector != nil || ref.Namespace == namespace)
	})
}

func warnSubjects(subject *rbacv1.Subject, subjects []rbacv1.Subject, fldPath *field.Path) []string {
	var warnings []string
	warn := func(s rbacv1.Subject, fldPath *field.Path) {
		if s.Kind == v1alpha1.ManagedServiceAccountKind && s.Namespace != "" {
			warnings = append(warnings, fmt.Sprintf("%s: ignored: a %s subject refers to an object in the namespace of the ClusterPermission",
				fldPath.Child("namespace"), v1alpha1.ManagedServiceAccountKind))
		}
	}
	switch {
	case subject == nil:
	case len(subjects) == 0:
		warn(*subject, fldPath.Child("subject"))
	case *subject != rbacv1.Subject{} && !slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return withGroup(s) == withGroup(*subject) }):
		warnings = append(warnings, fmt.Sprintf("%s: ignored, because subjects is set; add it to subjects to bind the role to it", fldPath.Child("subject")))
	}
	for i := range subjects {
		warn(subjects[i], fldPath.Child("subjects").Index(i))
	}
	return warnings
}

// withGroup sets the default API group of a User or Group.
func withGroup(s rbacv1.Subject) rbacv1.Subject {
	if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
		s.APIGroup = rbacv1.GroupName
	}
	return s
}
