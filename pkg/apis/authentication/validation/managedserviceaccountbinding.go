package validation

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

// maximumSubjects bounds how many subjects one binding has.
const maximumSubjects = 1000

var (
	refPath      = field.NewPath("spec", "ref")
	subjectsPath = field.NewPath("spec", "subjects")
)

// ValidateManagedServiceAccountBinding checks a ManagedServiceAccountBinding that is
// about to be created.
func ValidateManagedServiceAccountBinding(binding *authentication.ManagedServiceAccountBinding) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&binding.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validateRef(&binding.Spec.Ref, binding.Namespace)...)
	return append(errs, validateSubjects(binding.Spec.Subjects)...)
}

// ValidateManagedServiceAccountBindingUpdate checks an update of a
// ManagedServiceAccountBinding, which may not name another account: whoever wrote
// the binding was allowed to bind that account.
func ValidateManagedServiceAccountBindingUpdate(binding, old *authentication.ManagedServiceAccountBinding) field.ErrorList {
	var immutable field.ErrorList
	if ref := binding.Spec.Ref; ref != old.Spec.Ref {
		immutable = field.ErrorList{field.Invalid(refPath, ref.Namespace+"/"+ref.Name, apivalidation.FieldImmutableErrorMsg)}
	}
	if apiequality.Semantic.DeepEqual(binding.Spec.Subjects, old.Spec.Subjects) {
		return immutable
	}
	errs := validateSubjects(binding.Spec.Subjects)
	if len(errs) == 0 {
		return immutable
	}
	var versioned, versionedOld authenticationv1alpha1.ManagedServiceAccountBinding
	if authenticationv1alpha1.Convert_authentication_ManagedServiceAccountBinding_To_v1alpha1_ManagedServiceAccountBinding(binding, &versioned, nil) != nil ||
		authenticationv1alpha1.Convert_authentication_ManagedServiceAccountBinding_To_v1alpha1_ManagedServiceAccountBinding(old, &versionedOld, nil) != nil {
		return append(immutable, errs...)
	}
	return append(immutable, ratchet.Filter(errs, validateSubjects(old.Spec.Subjects), &versioned, &versionedOld)...)
}

func validateRef(ref *authentication.ManagedServiceAccountReference, namespace string) field.ErrorList {
	var errs field.ErrorList
	if ref.Namespace != namespace {
		errs = append(errs, field.Invalid(refPath.Child("namespace"), ref.Namespace,
			fmt.Sprintf("must be the namespace of the binding, %q: an account is bound where it is", namespace)))
	}
	return append(errs, validateServiceAccountName(ref.Name, refPath.Child("name"))...)
}

func validateServiceAccountName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for _, problem := range apivalidation.ValidateServiceAccountName(name, false) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func validateSubjects(subjects []rbacv1.Subject) field.ErrorList {
	if len(subjects) > maximumSubjects {
		// Without what else may be wrong: that could be as much again.
		return field.ErrorList{field.TooMany(subjectsPath, len(subjects), maximumSubjects)}
	}
	var errs field.ErrorList
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], subjectsPath.Index(i))...)
	}
	return errs
}

// validateSubject has RBAC's rules for subjects.
func validateSubject(subject *rbacv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	apiGroup, namespace, name := path.Child("apiGroup"), path.Child("namespace"), path.Child("name")
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		if subject.APIGroup != "" {
			errs = append(errs, field.NotSupported(apiGroup, subject.APIGroup, []string{""}))
		}
		if subject.Namespace == "" {
			errs = append(errs, field.Required(namespace, "a ServiceAccount of the hub has one"))
		} else {
			for _, problem := range apivalidation.ValidateNamespaceName(subject.Namespace, false) {
				errs = append(errs, field.Invalid(namespace, subject.Namespace, problem))
			}
		}
		errs = append(errs, validateServiceAccountName(subject.Name, name)...)
	case rbacv1.UserKind, rbacv1.GroupKind:
		if subject.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(apiGroup, subject.APIGroup, []string{rbacv1.GroupName}))
		}
		if subject.Namespace != "" {
			errs = append(errs, field.Forbidden(namespace, "users and groups have none"))
		}
		if subject.Name == "" {
			errs = append(errs, field.Required(name, ""))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("kind"), subject.Kind,
			[]string{rbacv1.GroupKind, rbacv1.ServiceAccountKind, rbacv1.UserKind}))
	}
	return errs
}
