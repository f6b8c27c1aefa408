package validate

import (
	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Subject applies the rules of RBAC. The default group is not required, so that a manifest without it stays equal to the
// object.
func Subject(subject rbacv1.Subject, fldPath *field.Path) field.ErrorList {
	apiGroup, namespace, name := fldPath.Child("apiGroup"), fldPath.Child("namespace"), fldPath.Child("name")
	var errs field.ErrorList
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		if subject.APIGroup != "" {
			errs = append(errs, field.NotSupported(apiGroup, subject.APIGroup, []string{""}))
		}
		errs = append(errs, RequiredName(subject.Namespace, namespace, apivalidation.ValidateNamespaceName)...)
		return append(errs, RequiredName(subject.Name, name, apivalidation.ValidateServiceAccountName)...)
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, Optional(subject.APIGroup, apiGroup, rbacv1.GroupName)...)
		if subject.Namespace != "" {
			errs = append(errs, field.Forbidden(namespace, "must not be set for a "+subject.Kind))
		}
	default:
		return field.ErrorList{field.NotSupported(fldPath.Child("kind"), subject.Kind,
			[]string{rbacv1.GroupKind, rbacv1.ServiceAccountKind, rbacv1.UserKind})}
	}
	return append(errs, Required(subject.Name, name)...)
}
