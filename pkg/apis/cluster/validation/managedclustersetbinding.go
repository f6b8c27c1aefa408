package validation

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

var clusterSetPath = field.NewPath("spec", "clusterSet")

// ManagedClusterSetBinding validates ManagedClusterSetBindings. The spec is immutable, since permission to bind the set is
// checked on create only.
var ManagedClusterSetBinding = validate.Rules[*cluster.ManagedClusterSetBinding]{
	Name: validateSetName, Create: validateBound,
	Change: func(binding, old *cluster.ManagedClusterSetBinding) field.ErrorList {
		return apivalidation.ValidateImmutableField(binding.Spec.ClusterSet, old.Spec.ClusterSet, clusterSetPath)
	},
}

func validateBound(binding *cluster.ManagedClusterSetBinding) field.ErrorList {
	switch set := binding.Spec.ClusterSet; set {
	case "":
		return field.ErrorList{field.Required(clusterSetPath, "")}
	case binding.Name:
		return nil
	default:
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), binding.Name,
			fmt.Sprintf("must be equal to %s, %q", clusterSetPath, set))}
	}
}
