package validation

import (
	"regexp"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

var (
	strategies = []string{v1alpha1.InstallStrategyManual, v1alpha1.InstallStrategyPlacements}
	rollouts   = []addon.RolloutType{"", addon.RolloutTypeAll, addon.RolloutTypeProgressive, addon.RolloutTypeProgressivePerGroup}

	deadlinePattern = regexp.MustCompile(`^([0-9]+[hms]|None)$`)
	portionPattern  = regexp.MustCompile(`^((100|[0-9]{1,2})%|[0-9]+)$`)
)

// ValidateClusterManagementAddOn checks a ClusterManagementAddOn that is about to be created.
func ValidateClusterManagementAddOn(a *addon.ClusterManagementAddOn) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&a.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateManagementSpec(a)...)
}

// ValidateClusterManagementAddOnUpdate checks an update of a ClusterManagementAddOn. Bad parts of the
// spec which the update does not touch are no reason to refuse it.
func ValidateClusterManagementAddOnUpdate(a, old *addon.ClusterManagementAddOn) field.ErrorList {
	if apiequality.Semantic.DeepEqual(a.Spec, old.Spec) {
		return nil
	}
	return managementWithoutOldErrors(validateManagementSpec(a), validateManagementSpec(old), a, old)
}

// ValidateClusterManagementAddOnStatusUpdate checks an update of the status of a ClusterManagementAddOn.
func ValidateClusterManagementAddOnStatusUpdate(a, old *addon.ClusterManagementAddOn) field.ErrorList {
	return managementWithoutOldErrors(validateManagementStatus(a), validateManagementStatus(old), a, old)
}

func validateManagementSpec(a *addon.ClusterManagementAddOn) field.ErrorList {
	spec, path := &a.Spec, field.NewPath("spec")
	var errs field.ErrorList
	for i, kind := range spec.SupportedConfigs {
		at := path.Child("supportedConfigs").Index(i)
		errs = append(errs, validateKind(kind.ConfigGroupResource, at)...)
		if kind.DefaultConfig != nil {
			errs = append(errs, validateReferent(*kind.DefaultConfig, at.Child("defaultConfig"))...)
		}
	}
	errs = append(errs, validateUnique(spec.SupportedConfigs,
		func(kind addon.ConfigMeta) addon.ConfigGroupResource { return kind.ConfigGroupResource }, path.Child("supportedConfigs"))...)
	path = path.Child("installStrategy")
	errs = append(errs, validateEnum(spec.InstallStrategy.Type, strategies, path.Child("type"))...)
	path = path.Child("placements")
	for i, placement := range spec.InstallStrategy.Placements {
		errs = append(errs, validatePlacement(placement.PlacementRef, path.Index(i))...)
		errs = append(errs, validateConfigs(placement.Configs, path.Index(i).Child("configs"))...)
		errs = append(errs, validateRollout(&placement.RolloutStrategy, path.Index(i).Child("rolloutStrategy"))...)
	}
	return append(errs, validateUnique(spec.InstallStrategy.Placements,
		func(placement addon.PlacementStrategy) addon.PlacementRef { return placement.PlacementRef }, path)...)
}

func validatePlacement(placement addon.PlacementRef, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if placement.Namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	if placement.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}

func validateRollout(strategy *addon.RolloutStrategy, path *field.Path) field.ErrorList {
	errs := validateEnum(strategy.Type, rollouts, path.Child("type"))
	if all := strategy.All; all != nil {
		errs = append(errs, validateRolloutConfig(&all.RolloutConfig, path.Child("all"))...)
	}
	if progressive := strategy.Progressive; progressive != nil {
		at := path.Child("progressive")
		errs = append(errs, validateRolloutConfig(&progressive.RolloutConfig, at)...)
		errs = append(errs, validatePortion(progressive.MaxConcurrency, at.Child("maxConcurrency"))...)
	}
	if groups := strategy.ProgressivePerGroup; groups != nil {
		errs = append(errs, validateRolloutConfig(&groups.RolloutConfig, path.Child("progressivePerGroup"))...)
	}
	return errs
}

func validateRolloutConfig(config *addon.RolloutConfig, path *field.Path) field.ErrorList {
	errs := validatePortion(config.MaxFailures, path.Child("maxFailures"))
	if config.ProgressDeadline != "" && !deadlinePattern.MatchString(config.ProgressDeadline) {
		errs = append(errs, field.Invalid(path.Child("progressDeadline"), config.ProgressDeadline, "must be a duration such as 10m, or None"))
	}
	return errs
}

func validatePortion(portion intstr.IntOrString, path *field.Path) field.ErrorList {
	// An empty one is left out.
	if portion == intstr.FromString("") || portionPattern.MatchString(portion.String()) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, portion.String(), "must be a number, or a percentage such as 25%")}
}

func validateManagementStatus(a *addon.ClusterManagementAddOn) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for i, reference := range a.Status.DefaultConfigReferences {
		at := path.Child("defaultconfigReferences").Index(i)
		errs = append(errs, validateKind(reference.ConfigGroupResource, at)...)
		errs = append(errs, validateSpecHash(reference.DesiredConfig, at.Child("desiredConfig"))...)
	}
	for i, progression := range a.Status.InstallProgressions {
		at := path.Child("installProgressions").Index(i)
		errs = append(errs, validatePlacement(progression.PlacementRef, at)...)
		errs = append(errs, metav1validation.ValidateConditions(progression.Conditions, at.Child("conditions"))...)
		for j, reference := range progression.ConfigReferences {
			at := at.Child("configReferences").Index(j)
			errs = append(errs, validateKind(reference.ConfigGroupResource, at)...)
			errs = append(errs, validateSpecHash(reference.DesiredConfig, at.Child("desiredConfig"))...)
			errs = append(errs, validateSpecHash(reference.LastKnownGoodConfig, at.Child("lastKnownGoodConfig"))...)
			errs = append(errs, validateSpecHash(reference.LastAppliedConfig, at.Child("lastAppliedConfig"))...)
		}
	}
	return errs
}

func managementWithoutOldErrors(errs, oldErrs field.ErrorList, a, old *addon.ClusterManagementAddOn) field.ErrorList {
	var versioned, versionedOld v1alpha1.ClusterManagementAddOn
	if v1alpha1.Convert_addon_ClusterManagementAddOn_To_v1alpha1_ClusterManagementAddOn(a, &versioned, nil) != nil ||
		v1alpha1.Convert_addon_ClusterManagementAddOn_To_v1alpha1_ClusterManagementAddOn(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, oldErrs, &versioned, &versionedOld)
}
