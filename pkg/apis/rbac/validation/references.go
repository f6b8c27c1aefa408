package validation

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

const (
	kindRole        = "Role"
	kindClusterRole = "ClusterRole"
)

func validateClusterRoleRef(ref *rbacv1.RoleRef, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.APIGroup == "" {
		errs = append(errs, field.Required(fldPath.Child("apiGroup"), "must be "+rbacv1.GroupName))
	} else {
		errs = append(errs, validateRoleGroup(ref.APIGroup, fldPath.Child("apiGroup"))...)
	}
	errs = append(errs, validateKind(ref.Kind, fldPath.Child("kind"), kindClusterRole)...)
	if ref.Name == "" {
		errs = append(errs, field.Required(fldPath.Child("name"), "leave out the whole roleRef to bind the role of spec.clusterRole"))
	} else {
		errs = append(errs, validatePathSegment(ref.Name, fldPath.Child("name"))...)
	}
	return errs
}

func validateRoleRef(ref rbac.RoleRef, fldPath *field.Path) field.ErrorList {
	const together = "apiGroup and name go together: give both to bind a role by name, or neither to bind the role that this object defines"
	group, name := ptr.Deref(ref.APIGroup, ""), ptr.Deref(ref.Name, "")
	errs := validateKind(ref.Kind, fldPath.Child("kind"), kindClusterRole, kindRole)
	if group == "" && name != "" {
		errs = append(errs, field.Required(fldPath.Child("apiGroup"), together))
	}
	if group != "" {
		errs = append(errs, validateRoleGroup(group, fldPath.Child("apiGroup"))...)
		if name == "" {
			errs = append(errs, field.Required(fldPath.Child("name"), together))
		}
	}
	if name != "" {
		errs = append(errs, validatePathSegment(name, fldPath.Child("name"))...)
	}
	return errs
}

func validateHubRoleRef(ref *rbac.HubRoleRef, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ref.APIGroup != "" {
		errs = append(errs, validateRoleGroup(ref.APIGroup, fldPath.Child("apiGroup"))...)
	}
	errs = append(errs, validateKind(ref.Kind, fldPath.Child("kind"), kindClusterRole, kindRole)...)
	if ref.Name == "" {
		errs = append(errs, field.Required(fldPath.Child("name"), ""))
	} else {
		errs = append(errs, validatePathSegment(ref.Name, fldPath.Child("name"))...)
	}
	switch {
	case ref.Kind == kindRole && ref.Namespace == "":
		errs = append(errs, field.Required(fldPath.Child("namespace"), "a Role is in a namespace"))
	case ref.Kind == kindClusterRole && ref.Namespace != "":
		errs = append(errs, field.Forbidden(fldPath.Child("namespace"), "a ClusterRole is in no namespace"))
	case ref.Namespace != "":
		errs = append(errs, validateNamespace(ref.Namespace, fldPath.Child("namespace"))...)
	}
	return errs
}

func validateRoleGroup(group string, fldPath *field.Path) field.ErrorList {
	if group != rbacv1.GroupName {
		return field.ErrorList{field.NotSupported(fldPath, group, []string{rbacv1.GroupName})}
	}
	return nil
}

func validateKind(kind string, fldPath *field.Path, supported ...string) field.ErrorList {
	if kind == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	if slices.Contains(supported, kind) {
		return nil
	}
	return field.ErrorList{field.NotSupported(fldPath, kind, supported)}
}

func validateSubjects(subject *rbacv1.Subject, subjects []rbacv1.Subject, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if subject == nil && len(subjects) == 0 {
		return append(errs, field.Required(fldPath.Child("subjects"), "at least one subject is needed; give subject or subjects"))
	}
	if subject != nil {
		alone := len(subjects) == 0
		repeated := contains(subjects, *subject)
		if !alone && !repeated {
			errs = append(errs, field.Forbidden(fldPath.Child("subject"), "must be one of subjects when both are given"))
		}
		// A repeated subject would only repeat the errors of its place among the subjects.
		if !repeated {
			errs = append(errs, validateSubject(*subject, fldPath.Child("subject"))...)
		}
	}
	for i := range subjects {
		errs = append(errs, validateSubject(subjects[i], fldPath.Child("subjects").Index(i))...)
	}
	return errs
}

func contains(subjects []rbacv1.Subject, wanted rbacv1.Subject) bool {
	for _, s := range subjects {
		if withGroup(s) == withGroup(wanted) {
			return true
		}
	}
	return false
}

// withGroup gives a User or Group the API group that it has when none is given.
func withGroup(s rbacv1.Subject) rbacv1.Subject {
	if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
		s.APIGroup = rbacv1.GroupName
	}
	return s
}

func validateSubject(subject rbacv1.Subject, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	name := fldPath.Child("name")
	if subject.Name == "" {
		errs = append(errs, field.Required(name, ""))
	}
	switch subject.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
		if subject.APIGroup != "" {
			errs = append(errs, validateRoleGroup(subject.APIGroup, fldPath.Child("apiGroup"))...)
		}
		if subject.Namespace != "" {
			errs = append(errs, field.Forbidden(fldPath.Child("namespace"), "a "+subject.Kind+" is in no namespace"))
		}
	case rbacv1.ServiceAccountKind:
		if subject.APIGroup != "" {
			errs = append(errs, field.NotSupported(fldPath.Child("apiGroup"), subject.APIGroup, []string{""}))
		}
		errs = append(errs, validateAccountName(subject.Name, name)...)
		if subject.Namespace == "" {
			errs = append(errs, field.Required(fldPath.Child("namespace"), "a ServiceAccount is in a namespace"))
		} else {
			errs = append(errs, validateNamespace(subject.Namespace, fldPath.Child("namespace"))...)
		}
	case v1alpha1.ManagedServiceAccountKind:
		if subject.APIGroup != v1alpha1.ManagedServiceAccountGroup {
			errs = append(errs, field.NotSupported(fldPath.Child("apiGroup"), subject.APIGroup, []string{v1alpha1.ManagedServiceAccountGroup}))
		}
		errs = append(errs, validateAccountName(subject.Name, name)...)
	default:
		errs = append(errs, validateKind(subject.Kind, fldPath.Child("kind"),
			rbacv1.GroupKind, v1alpha1.ManagedServiceAccountKind, rbacv1.ServiceAccountKind, rbacv1.UserKind)...)
	}
	return errs
}

func validateAccountName(name string, fldPath *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	var errs field.ErrorList
	for _, problem := range apivalidation.ValidateServiceAccountName(name, false) {
		errs = append(errs, field.Invalid(fldPath, name, problem))
	}
	return errs
}

func validateStatus(status *rbac.ClusterPermissionStatus) field.ErrorList {
	fldPath := field.NewPath("status")
	errs := metav1validation.ValidateConditions(status.Conditions, fldPath.Child("conditions"))
	if status.ResourceStatus == nil {
		return errs
	}
	fldPath = fldPath.Child("resourceStatus")
	clusterScoped := func(entries []rbac.ClusterScopedResourceStatus, fldPath *field.Path) {
		for i, entry := range entries {
			errs = append(errs, validateDelivered(entry.Name, fldPath.Index(i).Child("name"))...)
			errs = append(errs, metav1validation.ValidateConditions(entry.Conditions, fldPath.Index(i).Child("condition"))...)
		}
	}
	namespaced := func(entries []rbac.NamespacedResourceStatus, fldPath *field.Path) {
		for i, entry := range entries {
			errs = append(errs, validateDelivered(entry.Name, fldPath.Index(i).Child("name"))...)
			errs = append(errs, validateDelivered(entry.Namespace, fldPath.Index(i).Child("namespace"))...)
			errs = append(errs, metav1validation.ValidateConditions(entry.Conditions, fldPath.Index(i).Child("condition"))...)
		}
	}
	clusterScoped(status.ResourceStatus.ClusterRoles, fldPath.Child("clusterRoles"))
	clusterScoped(status.ResourceStatus.ClusterRoleBindings, fldPath.Child("clusterRoleBindings"))
	namespaced(status.ResourceStatus.Roles, fldPath.Child("roles"))
	namespaced(status.ResourceStatus.RoleBindings, fldPath.Child("roleBindings"))
	return errs
}

func validateDelivered(value string, fldPath *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	return nil
}
