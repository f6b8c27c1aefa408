package validation

import (
	"regexp"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/addon"
	"open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

const (
	maxVariableName  = 255
	maxVariableValue = 1024
)

var (
	variablePattern  = regexp.MustCompile(`^[a-zA-Z_][_a-zA-Z0-9]*$`)
	containerPattern = regexp.MustCompile(`^(deployments|daemonsets|statefulsets|replicasets|jobs|cronjobs|pods|\*):.+:.+$`)
)

// AddOnDeploymentConfig validates AddOnDeploymentConfigs.
var AddOnDeploymentConfig = validate.Rules[*addon.AddOnDeploymentConfig]{Name: apivalidation.NameIsDNSSubdomain, Spec: validateDeploymentSpec}

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
			errs = append(errs, field.Invalid(name, variable.Name, "must consist of letters, digits and underscores, and must not start with a digit"))
		}
		if value := ptr.Deref(variable.Value, ""); len(value) > maxVariableValue {
			errs = append(errs, field.TooLong(variables.Index(i).Child("value"), value, maxVariableValue))
		}
	}
	errs = append(errs, validateUnique(spec.CustomizedVariables,
		func(variable v1alpha1.CustomizedVariable) string { return variable.Name }, variables)...)
	if spec.NodePlacement != nil {
		errs = append(errs, metav1validation.ValidateLabels(spec.NodePlacement.NodeSelector, path.Child("nodePlacement", "nodeSelector"))...)
	}
	for i, registry := range spec.Registries {
		errs = append(errs, validate.Required(registry.Mirror, path.Child("registries").Index(i).Child("mirror"))...)
	}
	errs = append(errs, validate.OptionalName(ptr.Deref(spec.AgentInstallNamespace, ""), path.Child("agentInstallNamespace"), apivalidation.ValidateNamespaceName)...)
	requirements := path.Child("resourceRequirements")
	for i, requirement := range spec.ResourceRequirements {
		if !containerPattern.MatchString(requirement.ContainerID) {
			errs = append(errs, field.Invalid(requirements.Index(i).Child("containerID"), requirement.ContainerID,
				"must have the form <resource>:<name>:<container>, for example deployments:*:*"))
		}
	}
	return append(errs, validateUnique(spec.ResourceRequirements,
		func(requirement v1alpha1.ContainerResourceRequirements) string { return requirement.ContainerID }, requirements)...)
}
