// Package validation validates the objects of the group work.open-cluster-management.io.
package validation

import (
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
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

// ValidateManifestWork validates a new ManifestWork. limitBytes bounds the total
// size of the manifests; 0 means no limit.
func ValidateManifestWork(mw *work.ManifestWork, limitBytes int64) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&mw.ObjectMeta, true, validateName, field.NewPath("metadata"))
	return append(errs, validateSpec(&mw.Spec, limitBytes)...)
}

// ValidateManifestWorkUpdate validates an update of the spec of a ManifestWork.
// It ignores errors in parts of the spec that the update does not change. The
// generic registry validates the metadata of updates.
func ValidateManifestWorkUpdate(mw, old *work.ManifestWork, limitBytes int64) field.ErrorList {
	if apiequality.Semantic.DeepEqual(mw.Spec, old.Spec) {
		return nil
	}
	return ratchet.Update(mw, old, func(mw *work.ManifestWork) field.ErrorList {
		return validateSpec(&mw.Spec, limitBytes)
	}, workv1.Convert_work_ManifestWork_To_v1_ManifestWork)
}

// ValidateManifestWorkStatusUpdate validates an update of the status of a ManifestWork.
func ValidateManifestWorkStatusUpdate(mw, old *work.ManifestWork) field.ErrorList {
	return ratchet.Update(mw, old, validateStatus, workv1.Convert_work_ManifestWork_To_v1_ManifestWork)
}

func validateName(name string, prefix bool) []string {
	problems := apivalidation.NameIsDNSSubdomain(name, prefix)
	if len(name) > maxNameLength {
		problems = append(problems, fmt.Sprintf("must be no more than %d bytes: the agent derives a longer name from it on the managed cluster", maxNameLength))
	}
	return problems
}

func validateSpec(spec *work.ManifestWorkSpec, limitBytes int64) field.ErrorList {
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
	errs = append(errs, new(expressions).validateManifestConfigs(spec.ManifestConfigs, fldPath.Child("manifestConfigs"))...)
	return append(errs, validateExecutor(spec.Executor, fldPath.Child("executor"))...)
}

func validateDeleteOption(option *work.DeleteOption, fldPath *field.Path) field.ErrorList {
	if option == nil {
		return nil
	}
	var errs field.ErrorList
	if option.PropagationPolicy != "" {
		errs = append(errs, validate.Supported(option.PropagationPolicy, fldPath.Child("propagationPolicy"),
			work.DeletePropagationPolicyTypeForeground,
			work.DeletePropagationPolicyTypeOrphan,
			work.DeletePropagationPolicyTypeSelectivelyOrphan)...)
	}
	if orphans := option.SelectivelyOrphan; orphans != nil {
		orphansPath := fldPath.Child("selectivelyOrphans")
		if option.PropagationPolicy != work.DeletePropagationPolicyTypeSelectivelyOrphan {
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

func validateExecutor(executor *work.ManifestWorkExecutor, fldPath *field.Path) field.ErrorList {
	if executor == nil {
		return nil
	}
	fldPath = fldPath.Child("subject")
	errs := validate.Supported(executor.Subject.Type, fldPath.Child("type"), work.ExecutorSubjectTypeServiceAccount)
	account := executor.Subject.ServiceAccount
	if account == nil {
		return append(errs, field.Required(fldPath.Child("serviceAccount"), "must be set if type is ServiceAccount"))
	}
	errs = append(errs, validate.RequiredName(account.Namespace, fldPath.Child("serviceAccount", "namespace"), apivalidation.NameIsDNSSubdomain)...)
	return append(errs, validate.RequiredName(account.Name, fldPath.Child("serviceAccount", "name"), apivalidation.NameIsDNSSubdomain)...)
}

func validateStatus(mw *work.ManifestWork) field.ErrorList {
	status, fldPath := &mw.Status, field.NewPath("status")
	errs := metav1validation.ValidateConditions(status.Conditions, fldPath.Child("conditions"))
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

func validateFieldValue(value *work.FieldValue, fldPath *field.Path) field.ErrorList {
	errs := validate.Supported(value.Type, fldPath.Child("type"), work.Boolean, work.Integer, work.JsonRaw, work.String)
	if len(errs) > 0 {
		return errs
	}
	isSet := map[work.ValueType]bool{
		work.Boolean: value.Boolean != nil,
		work.Integer: value.Integer != nil,
		work.JsonRaw: value.JsonRaw != nil,
		work.String:  value.String != nil,
	}
	if !isSet[value.Type] {
		errs = append(errs, field.Required(fldPath, "must contain a value of type "+string(value.Type)))
	}
	if value.JsonRaw != nil && len(*value.JsonRaw) > maxJSONRawLength {
		errs = append(errs, field.TooLong(fldPath.Child("jsonRaw"), "", maxJSONRawLength))
	}
	return errs
}
