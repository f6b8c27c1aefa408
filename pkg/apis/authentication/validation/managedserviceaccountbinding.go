package validation

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

// maxSubjects bounds the subjects of one binding.
const maxSubjects = 1000

var (
	refPath      = field.NewPath("spec", "ref")
	subjectsPath = field.NewPath("spec", "subjects")
)

// ManagedServiceAccountBinding validates ManagedServiceAccountBindings. The reference is immutable, since the author was
// authorized to bind that account only.
var ManagedServiceAccountBinding = validate.Rules[*authentication.ManagedServiceAccountBinding]{
	Name: apivalidation.NameIsDNSSubdomain, Create: validateRef, Spec: validateSubjects,
	Change: func(binding, old *authentication.ManagedServiceAccountBinding) field.ErrorList {
		if ref := binding.Spec.Ref; ref != old.Spec.Ref {
			return field.ErrorList{field.Invalid(refPath, ref.Namespace+"/"+ref.Name, apivalidation.FieldImmutableErrorMsg)}
		}
		return nil
	},
}

func validateRef(binding *authentication.ManagedServiceAccountBinding) field.ErrorList {
	ref := &binding.Spec.Ref
	var errs field.ErrorList
	if ref.Namespace != binding.Namespace {
		errs = append(errs, field.Invalid(refPath.Child("namespace"), ref.Namespace,
			fmt.Sprintf("must be equal to metadata.namespace, %q: a binding and its account are in the same namespace", binding.Namespace)))
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
		errs = append(errs, validate.Subject(subjects[i], subjectsPath.Index(i))...)
	}
	return errs
}
