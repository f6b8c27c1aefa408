// Package validation checks the types of the group work.open-cluster-management.io.
package validation

import (
	"fmt"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	// The agent records a work in an object named <64 hexadecimal digits>-<work>,
	// whose name may not exceed 253 bytes either.
	maxNameLength = 253 - (64 + 1)
	// maxJSONRawLength bounds a feedback value, so that values cannot fill the status.
	maxJSONRawLength = 1024
)

// ValidateManifestWork checks a ManifestWork that is about to be created. The
// manifests may be limitBytes long in total; 0 means no limit.
func ValidateManifestWork(mw *work.ManifestWork, limitBytes int64) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&mw.ObjectMeta, true, validateName, field.NewPath("metadata"))
	return append(errs, validateSpec(&mw.Spec, limitBytes)...)
}

// ValidateManifestWorkUpdate checks an update of a ManifestWork. Bad parts of
// the spec which the update does not touch are no reason to refuse it. The
// metadata of updates is left to the generic registry, which checks it for
// every kind.
func ValidateManifestWorkUpdate(mw, old *work.ManifestWork, limitBytes int64) field.ErrorList {
	if apiequality.Semantic.DeepEqual(mw.Spec, old.Spec) {
		return nil
	}
	errs := validateSpec(&mw.Spec, limitBytes)
	if len(errs) == 0 {
		return nil
	}
	return withoutOldErrors(errs, validateSpec(&old.Spec, limitBytes), mw, old)
}

// ValidateManifestWorkStatusUpdate checks an update of the status of a ManifestWork.
func ValidateManifestWorkStatusUpdate(mw, old *work.ManifestWork) field.ErrorList {
	errs := validateStatus(&mw.Status)
	if len(errs) == 0 {
		return nil
	}
	return withoutOldErrors(errs, validateStatus(&old.Status), mw, old)
}

func withoutOldErrors(errs, oldErrs field.ErrorList, mw, old *work.ManifestWork) field.ErrorList {
	var versioned, versionedOld workv1.ManifestWork
	if workv1.Convert_work_ManifestWork_To_v1_ManifestWork(mw, &versioned, nil) != nil ||
		workv1.Convert_work_ManifestWork_To_v1_ManifestWork(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, oldErrs, &versioned, &versionedOld)
}

func validateName(name string, prefix bool) []string {
	problems := apivalidation.NameIsDNSSubdomain(name, prefix)
	if len(name) > maxNameLength {
		problems = append(problems, fmt.Sprintf("must be no more than %d bytes, for a name on the managed cluster is derived from it", maxNameLength))
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
		errs = append(errs, validateEnum(option.PropagationPolicy, fldPath.Child("propagationPolicy"),
			work.DeletePropagationPolicyTypeForeground,
			work.DeletePropagationPolicyTypeOrphan,
			work.DeletePropagationPolicyTypeSelectivelyOrphan)...)
	}
	if orphans := option.SelectivelyOrphan; orphans != nil {
		orphansPath := fldPath.Child("selectivelyOrphans")
		if option.PropagationPolicy != work.DeletePropagationPolicyTypeSelectivelyOrphan {
			errs = append(errs, field.Forbidden(orphansPath, "only for the propagationPolicy SelectivelyOrphan"))
		}
		for i, rule := range orphans.OrphaningRules {
			rulePath := orphansPath.Child("orphaningRules").Index(i)
			errs = append(errs, require(rule.Resource, rulePath.Child("resource"))...)
			errs = append(errs, require(rule.Name, rulePath.Child("name"))...)
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
	errs := validateEnum(executor.Subject.Type, fldPath.Child("type"), work.ExecutorSubjectTypeServiceAccount)
	account := executor.Subject.ServiceAccount
	if account == nil {
		return append(errs, field.Required(fldPath.Child("serviceAccount"), "needed for the type ServiceAccount"))
	}
	errs = append(errs, validateSubdomain(account.Namespace, fldPath.Child("serviceAccount", "namespace"))...)
	return append(errs, validateSubdomain(account.Name, fldPath.Child("serviceAccount", "name"))...)
}

func validateSubdomain(value string, fldPath *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	var errs field.ErrorList
	for _, problem := range apivalidation.NameIsDNSSubdomain(value, false) {
		errs = append(errs, field.Invalid(fldPath, value, problem))
	}
	return errs
}

func validateStatus(status *work.ManifestWorkStatus) field.ErrorList {
	fldPath := field.NewPath("status")
	errs := metav1validation.ValidateConditions(status.Conditions, fldPath.Child("conditions"))
	for i := range status.ResourceStatus.Manifests {
		manifest, path := &status.ResourceStatus.Manifests[i], fldPath.Child("resourceStatus", "manifests").Index(i)
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(manifest.ResourceMeta.Ordinal), path.Child("resourceMeta", "ordinal"))...)
		errs = append(errs, metav1validation.ValidateConditions(manifest.Conditions, path.Child("conditions"))...)
		names := map[string]bool{}
		for j := range manifest.StatusFeedbacks.Values {
			value, valuePath := &manifest.StatusFeedbacks.Values[j], path.Child("statusFeedback", "values").Index(j)
			errs = append(errs, validateUniqueName(value.Name, names, valuePath.Child("name"))...)
			errs = append(errs, validateFieldValue(&value.Value, valuePath.Child("fieldValue"))...)
		}
	}
	return errs
}

func validateFieldValue(value *work.FieldValue, fldPath *field.Path) field.ErrorList {
	errs := validateEnum(value.Type, fldPath.Child("type"), work.Boolean, work.Integer, work.JsonRaw, work.String)
	if len(errs) > 0 {
		return errs
	}
	given := map[work.ValueType]bool{
		work.Boolean: value.Boolean != nil,
		work.Integer: value.Integer != nil,
		work.JsonRaw: value.JsonRaw != nil,
		work.String:  value.String != nil,
	}
	if !given[value.Type] {
		errs = append(errs, field.Required(fldPath, "needs a value of its type "+string(value.Type)))
	}
	if value.JsonRaw != nil && len(*value.JsonRaw) > maxJSONRawLength {
		errs = append(errs, field.TooLong(fldPath.Child("jsonRaw"), "", maxJSONRawLength))
	}
	return errs
}

func require(value string, fldPath *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	return nil
}

func validateEnum[T ~string](value T, fldPath *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(fldPath, value, supported)}
}

func validateUniqueName(name string, taken map[string]bool, fldPath *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	if taken[name] {
		return field.ErrorList{field.Duplicate(fldPath, name)}
	}
	taken[name] = true
	return nil
}
