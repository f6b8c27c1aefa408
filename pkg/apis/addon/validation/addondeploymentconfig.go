package validation

import (
	"regexp"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

const (
	maxVariableName  = 255
	maxVariableValue = 1024
)

var (
	variablePattern  = regexp.MustCompile(`^[a-zA-Z_][_a-zA-Z0-9]*$`)
	containerPattern = regexp.MustCompile(`^(deployments|daemonsets|statefulsets|replicasets|jobs|cronjobs|pods|\*):.+:.+$`)
)

// ValidateAddOnDeploymentConfig checks an AddOnDeploymentConfig that is about to be created.
func ValidateAddOnDeploymentConfig(config *addon.AddOnDeploymentConfig) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&config.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateDeploymentSpec(config)...)
}

// ValidateAddOnDeploymentConfigUpdate checks an update of an AddOnDeploymentConfig. Bad parts of the
// spec which the update does not touch are no reason to refuse it.
func ValidateAddOnDeploymentConfigUpdate(config, old *addon.AddOnDeploymentConfig) field.ErrorList {
	if apiequality.Semantic.DeepEqual(config.Spec, old.Spec) {
		return nil
	}
	var versioned, versionedOld v1alpha1.AddOnDeploymentConfig
	errs := validateDeploymentSpec(config)
	if v1alpha1.Convert_addon_AddOnDeploymentConfig_To_v1alpha1_AddOnDeploymentConfig(config, &versioned, nil) != nil ||
		v1alpha1.Convert_addon_AddOnDeploymentConfig_To_v1alpha1_AddOnDeploymentConfig(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, validateDeploymentSpec(old), &versioned, &versionedOld)
}

func validateDeploymentSpec(config *addon.AddOnDeploymentConfig) field.ErrorList {
	spec, path := &config.Spec, field.NewPath("spec")
	var errs field.ErrorList
	variables := path.Child("customizedVariables")
	for i, variable := range spec.CustomizedVariables {
		name := variables.Index(i).Child("name")
		switch {
		case variable.Name == "":
			errs = append(errs, field.Required(name, ""))
		case len(variable.Name) > maxVariableName:
			errs = append(errs, field.TooLong(name, variable.Name, maxVariableName))
		case !variablePattern.MatchString(variable.Name):
			errs = append(errs, field.Invalid(name, variable.Name, "must have letters, digits and underscores only, and not begin with a digit"))
		}
		if len(variable.Value) > maxVariableValue {
			errs = append(errs, field.TooLong(variables.Index(i).Child("value"), variable.Value, maxVariableValue))
		}
	}
	errs = append(errs, validateUnique(spec.CustomizedVariables,
		func(variable addon.CustomizedVariable) string { return variable.Name }, variables)...)
	if spec.NodePlacement != nil {
		errs = append(errs, metav1validation.ValidateLabels(spec.NodePlacement.NodeSelector, path.Child("nodePlacement", "nodeSelector"))...)
	}
	for i, registry := range spec.Registries {
		if registry.Mirror == "" {
			errs = append(errs, field.Required(path.Child("registries").Index(i).Child("mirror"), ""))
		}
	}
	if spec.AgentInstallNamespace != nil {
		errs = append(errs, validateInstallNamespace(*spec.AgentInstallNamespace, path.Child("agentInstallNamespace"))...)
	}
	requirements := path.Child("resourceRequirements")
	for i, requirement := range spec.ResourceRequirements {
		if !containerPattern.MatchString(requirement.ContainerID) {
			errs = append(errs, field.Invalid(requirements.Index(i).Child("containerID"), requirement.ContainerID,
				"must be <resource>:<name>:<container>, such as deployments:*:*"))
		}
	}
	return append(errs, validateUnique(spec.ResourceRequirements,
		func(requirement addon.ContainerResourceRequirements) string { return requirement.ContainerID }, requirements)...)
}
