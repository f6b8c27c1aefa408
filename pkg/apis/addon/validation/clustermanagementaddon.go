package validation

import (
	"fmt"
	"regexp"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

var (
	deadlinePattern = regexp.MustCompile(`^([0-9]+[hms]|None)$`)
	portionPattern  = regexp.MustCompile(`^((100|[0-9]{1,2})%|[0-9]+)$`)
)

// ClusterManagementAddOn validates ClusterManagementAddOns.
var ClusterManagementAddOn = validate.Rules[*addon.ClusterManagementAddOn]{
	ClusterScoped: true, Name: apivalidation.NameIsDNSSubdomain, Spec: validateManagementSpec, Status: validateManagementStatus,
}

// WarningsForClusterManagementAddOn returns warnings about Placements that strategic merge patches, which identify
// them by name, would confuse.
func WarningsForClusterManagementAddOn(a *addon.ClusterManagementAddOn) []string {
	var warnings []string
	seen := map[string]bool{}
	path := field.NewPath("spec", "installStrategy", "placements")
	for i, placement := range a.Spec.InstallStrategy.Placements {
		if seen[placement.Name] {
			warnings = append(warnings, fmt.Sprintf("%s: another Placement has the same name; use kubectl apply --server-side, since client-side apply identifies entries by name",
				path.Index(i).Child("name")))
		}
		seen[placement.Name] = true
	}
	return warnings
}

func validateManagementSpec(a *addon.ClusterManagementAddOn) field.ErrorList {
	spec, path := &a.Spec, field.NewPath("spec")
	var errs field.ErrorList
	for i, kind := range spec.SupportedConfigs {
		at := path.Child("supportedConfigs").Index(i)
		errs = append(errs, validate.Required(kind.Resource, at.Child("resource"))...)
		if kind.DefaultConfig != nil {
			errs = append(errs, validateDefaultConfig(kind.DefaultConfig, at.Child("defaultConfig"))...)
		}
	}
	errs = append(errs, validateUnique(spec.SupportedConfigs,
		func(kind v1alpha1.ConfigMeta) schema.GroupResource { return groupResource(kind.ConfigGroupResource) }, path.Child("supportedConfigs"))...)
	path = path.Child("installStrategy")
	errs = append(errs, validate.Supported(spec.InstallStrategy.Type, path.Child("type"),
		v1alpha1.InstallStrategyManual, v1alpha1.InstallStrategyPlacements)...)
	path = path.Child("placements")
	for i, placement := range spec.InstallStrategy.Placements {
		errs = append(errs, validatePlacement(placement.PlacementRef, path.Index(i))...)
		errs = append(errs, validateConfigs(placement.Configs, path.Index(i).Child("configs"))...)
		errs = append(errs, validateRollout(&placement.RolloutStrategy, path.Index(i).Child("rolloutStrategy"))...)
	}
	return append(errs, validateUnique(spec.InstallStrategy.Placements,
		func(placement v1alpha1.PlacementStrategy) v1alpha1.PlacementRef { return placement.PlacementRef }, path)...)
}

func validateDefaultConfig(config *v1alpha1.ConfigReferent, path *field.Path) field.ErrorList {
	if config.Name == v1beta1.NoDefaultConfigName {
		return field.ErrorList{field.Invalid(path.Child("name"), config.Name, "is reserved for kinds of configurations without a default, which have no namespace")}
	}
	return validate.Required(config.Name, path.Child("name"))
}

func validatePlacement(placement v1alpha1.PlacementRef, path *field.Path) field.ErrorList {
	return append(validate.Required(placement.Namespace, path.Child("namespace")),
		validate.Required(placement.Name, path.Child("name"))...)
}

func validateRollout(strategy *v1alpha1.RolloutStrategy, path *field.Path) field.ErrorList {
	errs := validate.Optional(strategy.Type, path.Child("type"),
		v1alpha1.RolloutTypeAll, v1alpha1.RolloutTypeProgressive, v1alpha1.RolloutTypeProgressivePerGroup)
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

func validateRolloutConfig(config *v1alpha1.RolloutConfig, path *field.Path) field.ErrorList {
	errs := validatePortion(config.MaxFailures, path.Child("maxFailures"))
	if deadline := ptr.Deref(config.ProgressDeadline, ""); deadline != "" && !deadlinePattern.MatchString(deadline) {
		errs = append(errs, field.Invalid(path.Child("progressDeadline"), deadline, "must be None or a duration such as 10m"))
	}
	if config.MinSuccessTime != nil {
		if _, err := time.ParseDuration(*config.MinSuccessTime); err != nil {
			errs = append(errs, field.Invalid(path.Child("minSuccessTime"), *config.MinSuccessTime, "must be a duration such as 5m"))
		}
	}
	return errs
}

func validatePortion(portion *intstr.IntOrString, path *field.Path) field.ErrorList {
	if portion == nil || *portion == intstr.FromString("") || portionPattern.MatchString(portion.String()) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, portion.String(), "must be an integer or a percentage such as 25%")}
}

func validateManagementStatus(a *addon.ClusterManagementAddOn) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for i, reference := range a.Status.DefaultConfigReferences {
		at := path.Child("defaultconfigReferences").Index(i)
		errs = append(errs, validate.Required(reference.Resource, at.Child("resource"))...)
		errs = append(errs, validateSpecHash(reference.DesiredConfig, at.Child("desiredConfig"))...)
	}
	for i, progression := range a.Status.InstallProgressions {
		at := path.Child("installProgressions").Index(i)
		errs = append(errs, validatePlacement(progression.PlacementRef, at)...)
		errs = append(errs, metav1validation.ValidateConditions(progression.Conditions, at.Child("conditions"))...)
		for j, reference := range progression.ConfigReferences {
			at := at.Child("configReferences").Index(j)
			errs = append(errs, validate.Required(reference.Resource, at.Child("resource"))...)
			errs = append(errs, validateSpecHash(reference.DesiredConfig, at.Child("desiredConfig"))...)
			errs = append(errs, validateSpecHash(reference.LastKnownGoodConfig, at.Child("lastKnownGoodConfig"))...)
			errs = append(errs, validateSpecHash(reference.LastAppliedConfig, at.Child("lastAppliedConfig"))...)
		}
	}
	return errs
}
