package validation

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// WarningsForClusterPermission returns warnings about parts of a valid
// ClusterPermission that probably have no effect.
func WarningsForClusterPermission(cp *rbac.ClusterPermission) []string {
	var warnings []string
	if binding := cp.Spec.ClusterRoleBinding; binding != nil {
		warnings = append(warnings, warnClusterRoleBinding(cp, binding, specPath.Child("clusterRoleBinding"))...)
	}
	for i := range ptr.Deref(cp.Spec.ClusterRoleBindings, nil) {
		warnings = append(warnings, warnClusterRoleBinding(cp, &(*cp.Spec.ClusterRoleBindings)[i], specPath.Child("clusterRoleBindings").Index(i))...)
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

func warnClusterRoleBinding(cp *rbac.ClusterPermission, binding *v1alpha1.ClusterRoleBinding, fldPath *field.Path) []string {
	var warnings []string
	if binding.RoleRef == nil && !definesClusterRole(cp) {
		warnings = append(warnings, dangling(cp, kindClusterRole, fldPath))
	}
	return append(warnings, warnSubjects(binding.Subject, binding.Subjects, fldPath)...)
}

func dangling(cp *rbac.ClusterPermission, kind string, fldPath *field.Path) string {
	return fmt.Sprintf("%s: this ClusterPermission does not define %s %q; the binding grants nothing unless the managed cluster has such a %s",
		fldPath.Child("roleRef"), kind, cp.Name, kind)
}

func definesClusterRole(cp *rbac.ClusterPermission) bool {
	if cp.Spec.ClusterRole != nil {
		return true
	}
	for _, ref := range ptr.Deref(cp.Spec.RoleRefs, nil) {
		if ref.Kind == kindClusterRole && ref.Name == cp.Name {
			return true
		}
	}
	return false
}

// definesRole returns true for selectors, since the namespaces that they match are unknown here.
func definesRole(cp *rbac.ClusterPermission, namespace string, selector *metav1.LabelSelector) bool {
	for _, role := range ptr.Deref(cp.Spec.Roles, nil) {
		if selector != nil || role.NamespaceSelector != nil || role.Namespace == namespace {
			return true
		}
	}
	for _, ref := range ptr.Deref(cp.Spec.RoleRefs, nil) {
		if ref.Kind == kindRole && ref.Name == cp.Name && (selector != nil || ref.Namespace == namespace) {
			return true
		}
	}
	return false
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
	case *subject != rbacv1.Subject{} && !contains(subjects, *subject):
		warnings = append(warnings, fmt.Sprintf("%s: ignored, because subjects is set; add it to subjects to bind the role to it", fldPath.Child("subject")))
	}
	for i := range subjects {
		warn(subjects[i], fldPath.Child("subjects").Index(i))
	}
	return warnings
}
