package validation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

const (
	kindRole        = "Role"
	kindClusterRole = "ClusterRole"
)

func validateClusterRoleRef(ref *rbacv1.RoleRef, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.APIGroup == "" {
		errs = append(errs, field.Required(fldPath.Child("apiGroup"), "must be "+rbacv1.GroupName))
	}
	errs = append(errs, validate.Optional(ref.APIGroup, fldPath.Child("apiGroup"), rbacv1.GroupName)...)
	errs = append(errs, validate.Supported(ref.Kind, fldPath.Child("kind"), kindClusterRole)...)
	if ref.Name == "" {
		return append(errs, field.Required(fldPath.Child("name"), "to bind the role of spec.clusterRole, omit roleRef"))
	}
	return append(errs, validate.Name(ref.Name, fldPath.Child("name"), validate.PathSegment)...)
}

func validateRoleRef(ref v1alpha1.RoleRef, fldPath *field.Path) field.ErrorList {
	const together = "apiGroup and name must be set together; to bind the role that this ClusterPermission defines, omit both"
	group, name := ptr.Deref(ref.APIGroup, ""), ptr.Deref(ref.Name, "")
	errs := validate.Supported(ref.Kind, fldPath.Child("kind"), kindClusterRole, kindRole)
	if group == "" && name != "" {
		errs = append(errs, field.Required(fldPath.Child("apiGroup"), together))
	}
	errs = append(errs, validate.Optional(group, fldPath.Child("apiGroup"), rbacv1.GroupName)...)
	if group != "" && name == "" {
		errs = append(errs, field.Required(fldPath.Child("name"), together))
	}
	return append(errs, validate.OptionalName(name, fldPath.Child("name"), validate.PathSegment)...)
}

func validateHubRoleRef(ref *v1alpha1.HubRoleRef, fldPath *field.Path) field.ErrorList {
	errs := validate.Optional(ref.APIGroup, fldPath.Child("apiGroup"), rbacv1.GroupName)
	errs = append(errs, validate.Supported(ref.Kind, fldPath.Child("kind"), kindClusterRole, kindRole)...)
	errs = append(errs, validate.RequiredName(ref.Name, fldPath.Child("name"), validate.PathSegment)...)
	switch {
	case ref.Kind == kindRole && ref.Namespace == "":
		errs = append(errs, field.Required(fldPath.Child("namespace"), "must be set for a Role"))
	case ref.Kind == kindClusterRole && ref.Namespace != "":
		errs = append(errs, field.Forbidden(fldPath.Child("namespace"), "must not be set for a ClusterRole"))
	case ref.Namespace != "":
		errs = append(errs, validate.Name(ref.Namespace, fldPath.Child("namespace"), apivalidation.ValidateNamespaceName)...)
	}
	return errs
}

func validateSubjects(subject *rbacv1.Subject, subjects []rbacv1.Subject, fldPath *field.Path) field.ErrorList {
	used := v1alpha1.BindingSubjects(subject, subjects)
	switch {
	case len(used) == 0:
		return field.ErrorList{field.Required(fldPath.Child("subjects"), "at least one of subject and subjects must be set")}
	case len(subjects) == 0:
		return validateSubject(used[0], fldPath.Child("subject"))
	}
	var errs field.ErrorList
	if subject != nil && *subject != (rbacv1.Subject{}) {
		// It is ignored, but stored, with these fields.
		errs = append(errs, validate.Required(subject.Kind, fldPath.Child("subject", "kind"))...)
		errs = append(errs, validate.Required(subject.Name, fldPath.Child("subject", "name"))...)
	}
	for i := range subjects {
		errs = append(errs, validateSubject(subjects[i], fldPath.Child("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(subject rbacv1.Subject, fldPath *field.Path) field.ErrorList {
	switch subject.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind:
		return validate.Subject(subject, fldPath)
	case v1alpha1.ManagedServiceAccountKind:
		var errs field.ErrorList
		if subject.APIGroup != v1alpha1.ManagedServiceAccountGroup {
			errs = append(errs, field.NotSupported(fldPath.Child("apiGroup"), subject.APIGroup, []string{v1alpha1.ManagedServiceAccountGroup}))
		}
		return append(errs, validate.RequiredName(subject.Name, fldPath.Child("name"), apivalidation.ValidateServiceAccountName)...)
	}
	errs := validate.Supported(subject.Kind, fldPath.Child("kind"),
		rbacv1.GroupKind, v1alpha1.ManagedServiceAccountKind, rbacv1.ServiceAccountKind, rbacv1.UserKind)
	return append(errs, validate.Required(subject.Name, fldPath.Child("name"))...)
}

func validateStatus(cp *rbac.ClusterPermission) field.ErrorList {
	status, fldPath := cp.Status.ResourceStatus, field.NewPath("status", "resourceStatus")
	if status == nil {
		return nil
	}
	var errs field.ErrorList
	clusterScoped := func(entries []v1alpha1.ClusterScopedResourceStatus, fldPath *field.Path) {
		for i, entry := range entries {
			errs = append(errs, validate.Required(entry.Name, fldPath.Index(i).Child("name"))...)
			errs = append(errs, metav1validation.ValidateConditions(entry.Conditions, fldPath.Index(i).Child("condition"))...)
		}
	}
	namespaced := func(entries []v1alpha1.NamespacedResourceStatus, fldPath *field.Path) {
		for i, entry := range entries {
			errs = append(errs, validate.Required(entry.Name, fldPath.Index(i).Child("name"))...)
			errs = append(errs, validate.Required(entry.Namespace, fldPath.Index(i).Child("namespace"))...)
			errs = append(errs, metav1validation.ValidateConditions(entry.Conditions, fldPath.Index(i).Child("condition"))...)
		}
	}
	clusterScoped(status.ClusterRoles, fldPath.Child("clusterRoles"))
	clusterScoped(status.ClusterRoleBindings, fldPath.Child("clusterRoleBindings"))
	namespaced(status.Roles, fldPath.Child("roles"))
	namespaced(status.RoleBindings, fldPath.Child("roleBindings"))
	return errs
}
