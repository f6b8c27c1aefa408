// Package validation validates the objects of the group work.open-cluster-management.io.
package validation

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	// The agent creates an AppliedManifestWork named <64 hexadecimal digits>-<name>,
	// whose name must not exceed 253 bytes.
	maxNameLength = 253 - (64 + 1)
	// maxJSONRawLength bounds a feedback value.
	maxJSONRawLength = 1024
)

// ManifestWork returns the rules of ManifestWorks. limitBytes bounds the total size of the manifests; 0 means no limit.
func ManifestWork(limitBytes int64) validate.Rules[*work.ManifestWork] {
	return validate.Rules[*work.ManifestWork]{
		Name:   validateName,
		Spec:   func(mw *work.ManifestWork) field.ErrorList { return validateSpec(&mw.Spec, limitBytes) },
		Status: validateStatus,
	}
}

func validateName(name string, prefix bool) []string {
	problems := apivalidation.NameIsDNSSubdomain(name, prefix)
	if len(name) > maxNameLength {
		problems = append(problems, fmt.Sprintf("must be no more than %d bytes: the agent derives a longer name from it on the managed cluster", maxNameLength))
	}
	return problems
}

func validateSpec(spec *workv1.ManifestWorkSpec, limitBytes int64) field.ErrorList {
	fldPath := field.NewPath("spec")
	errs := validateManifests(spec.Workload.Manifests, limitBytes, fldPath.Child("workload", "manifests"))
	errs = append(errs, validateDeleteOption(spec.DeleteOption, fldPath.Child("deleteOption"))...)
	rules := 0
	if option := spec.DeleteOption; option != nil && option.SelectivelyOrphan != nil {
		rules = len(option.SelectivelyOrphan.OrphaningRules)
	}
	if err := limits.CheckMatches(len(spec.Workload.Manifests), len(spec.ManifestConfigs), rules, fldPath.Child("manifestConfigs")); err != nil {
		errs = append(errs, err)
	}
	known := &expressions{known: map[string]error{}}
	errs = append(errs, known.validateManifestConfigs(spec.ManifestConfigs, fldPath.Child("manifestConfigs"))...)
	return append(errs, validateExecutor(spec.Executor, fldPath.Child("executor"))...)
}

func validateDeleteOption(option *workv1.DeleteOption, fldPath *field.Path) field.ErrorList {
	if option == nil {
		return nil
	}
	errs := validate.Optional(option.PropagationPolicy, fldPath.Child("propagationPolicy"),
		workv1.DeletePropagationPolicyTypeForeground, workv1.DeletePropagationPolicyTypeOrphan,
		workv1.DeletePropagationPolicyTypeSelectivelyOrphan)
	if orphans := option.SelectivelyOrphan; orphans != nil {
		orphansPath := fldPath.Child("selectivelyOrphans")
		if option.PropagationPolicy != workv1.DeletePropagationPolicyTypeSelectivelyOrphan {
			errs = append(errs, field.Forbidden(orphansPath, "may be set only if propagationPolicy is SelectivelyOrphan"))
		}
		for i, rule := range orphans.OrphaningRules {
			rulePath := orphansPath.Child("orphaningRules").Index(i)
			errs = append(errs, validate.Required(rule.Resource, rulePath.Child("resource"))...)
			errs = append(errs, validate.Required(rule.Name, rulePath.Child("name"))...)
		}
	}
	if ttl := option.TTLSecondsAfterFinished; ttl != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*ttl, fldPath.Child("ttlSecondsAfterFinished"))...)
	}
	return errs
}

func validateExecutor(executor *workv1.ManifestWorkExecutor, fldPath *field.Path) field.ErrorList {
	if executor == nil {
		return nil
	}
	fldPath = fldPath.Child("subject")
	errs := validate.Supported(executor.Subject.Type, fldPath.Child("type"), workv1.ExecutorSubjectTypeServiceAccount)
	account := executor.Subject.ServiceAccount
	if account == nil {
		return append(errs, field.Required(fldPath.Child("serviceAccount"), "must be set if type is ServiceAccount"))
	}
	errs = append(errs, validate.RequiredName(account.Namespace, fldPath.Child("serviceAccount", "namespace"), apivalidation.NameIsDNSSubdomain)...)
	return append(errs, validate.RequiredName(account.Name, fldPath.Child("serviceAccount", "name"), apivalidation.NameIsDNSSubdomain)...)
}

func validateStatus(mw *work.ManifestWork) field.ErrorList {
	status, fldPath := &mw.Status, field.NewPath("status")
	var errs field.ErrorList
	for i := range status.ResourceStatus.Manifests {
		manifest, path := &status.ResourceStatus.Manifests[i], fldPath.Child("resourceStatus", "manifests").Index(i)
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(manifest.ResourceMeta.Ordinal), path.Child("resourceMeta", "ordinal"))...)
		errs = append(errs, metav1validation.ValidateConditions(manifest.Conditions, path.Child("conditions"))...)
		names := map[string]bool{}
		for j := range manifest.StatusFeedbacks.Values {
			value, valuePath := &manifest.StatusFeedbacks.Values[j], path.Child("statusFeedback", "values").Index(j)
			errs = append(errs, validate.Unique(value.Name, names, valuePath.Child("name"))...)
			errs = append(errs, validateFieldValue(&value.Value, valuePath.Child("fieldValue"))...)
		}
	}
	return errs
}

func validateFieldValue(value *workv1.FieldValue, fldPath *field.Path) field.ErrorList {
	errs := validate.Supported(value.Type, fldPath.Child("type"), workv1.Boolean, workv1.Integer, workv1.JsonRaw, workv1.String)
	if len(errs) > 0 {
		return errs
	}
	isSet := map[workv1.ValueType]bool{
		workv1.Boolean: value.Boolean != nil,
		workv1.Integer: value.Integer != nil,
		workv1.JsonRaw: value.JsonRaw != nil,
		workv1.String:  value.String != nil,
	}
	if !isSet[value.Type] {
		errs = append(errs, field.Required(fldPath, "must contain a value of type "+string(value.Type)))
	}
	if value.JsonRaw != nil && len(*value.JsonRaw) > maxJSONRawLength {
		errs = append(errs, field.TooLong(fldPath.Child("jsonRaw"), "", maxJSONRawLength))
	}
	return errs
}
