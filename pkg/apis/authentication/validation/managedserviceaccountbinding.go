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
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

// maxSubjects bounds the subjects of one binding.
const maxSubjects = 1000

var (
	refPath      = field.NewPath("spec", "ref")
	subjectsPath = field.NewPath("spec", "subjects")
)

// ValidateManagedServiceAccountBinding validates a new ManagedServiceAccountBinding.
func ValidateManagedServiceAccountBinding(binding *authentication.ManagedServiceAccountBinding) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&binding.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validateRef(&binding.Spec.Ref, binding.Namespace)...)
	return append(errs, validateSubjects(binding)...)
}

// ValidateManagedServiceAccountBindingUpdate validates an update of a
// ManagedServiceAccountBinding. The reference is immutable, since the author was
// authorized to bind that account only.
func ValidateManagedServiceAccountBindingUpdate(binding, old *authentication.ManagedServiceAccountBinding) field.ErrorList {
	var errs field.ErrorList
	if ref := binding.Spec.Ref; ref != old.Spec.Ref {
		errs = field.ErrorList{field.Invalid(refPath, ref.Namespace+"/"+ref.Name, apivalidation.FieldImmutableErrorMsg)}
	}
	if apiequality.Semantic.DeepEqual(binding.Spec.Subjects, old.Spec.Subjects) {
		return errs
	}
	return append(errs, ratchet.Update(binding, old, validateSubjects,
		authenticationv1alpha1.Convert_authentication_ManagedServiceAccountBinding_To_v1alpha1_ManagedServiceAccountBinding)...)
}

func validateRef(ref *authentication.ManagedServiceAccountReference, namespace string) field.ErrorList {
	var errs field.ErrorList
	if ref.Namespace != namespace {
		errs = append(errs, field.Invalid(refPath.Child("namespace"), ref.Namespace,
			fmt.Sprintf("must be equal to metadata.namespace, %q: a binding and its account are in the same namespace", namespace)))
	}
	return append(errs, validate.RequiredName(ref.Name, refPath.Child("name"), apivalidation.ValidateServiceAccountName)...)
}

func validateSubjects(binding *authentication.ManagedServiceAccountBinding) field.ErrorList {
	subjects := binding.Spec.Subjects
	if len(subjects) > maxSubjects {
		// Errors about single subjects could make the response as large as the request.
		return field.ErrorList{field.TooMany(subjectsPath, len(subjects), maxSubjects)}
	}
	var errs field.ErrorList
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], subjectsPath.Index(i))...)
	}
	return errs
}

// validateSubject applies the rules of RBAC.
func validateSubject(subject *rbacv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	apiGroup, namespace, name := path.Child("apiGroup"), path.Child("namespace"), path.Child("name")
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		if subject.APIGroup != "" {
			errs = append(errs, field.NotSupported(apiGroup, subject.APIGroup, []string{""}))
		}
		errs = append(errs, validate.RequiredName(subject.Namespace, namespace, apivalidation.ValidateNamespaceName)...)
		errs = append(errs, validate.RequiredName(subject.Name, name, apivalidation.ValidateServiceAccountName)...)
	case rbacv1.UserKind, rbacv1.GroupKind:
		// The default is not stored, so that a manifest without the group stays equal to the object.
		if subject.APIGroup != "" && subject.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(apiGroup, subject.APIGroup, []string{rbacv1.GroupName}))
		}
		if subject.Namespace != "" {
			errs = append(errs, field.Forbidden(namespace, "must not be set for a "+subject.Kind))
		}
		errs = append(errs, validate.Required(subject.Name, name)...)
	default:
		errs = append(errs, field.NotSupported(path.Child("kind"), subject.Kind,
			[]string{rbacv1.GroupKind, rbacv1.ServiceAccountKind, rbacv1.UserKind}))
	}
	return errs
}
