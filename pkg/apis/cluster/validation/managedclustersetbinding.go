package validation

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

var clusterSetPath = field.NewPath("spec", "clusterSet")

// ValidateManagedClusterSetBinding validates a new ManagedClusterSetBinding.
func ValidateManagedClusterSetBinding(binding *cluster.ManagedClusterSetBinding) field.ErrorList {
	metaPath := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMeta(&binding.ObjectMeta, true, validateSetName, metaPath)
	switch set := binding.Spec.ClusterSet; set {
	case "":
		errs = append(errs, field.Required(clusterSetPath, ""))
	case binding.Name:
	default:
		errs = append(errs, field.Invalid(metaPath.Child("name"), binding.Name,
			fmt.Sprintf("must be equal to %s, %q", clusterSetPath, set)))
	}
	return errs
}

// ValidateManagedClusterSetBindingUpdate validates an update of a ManagedClusterSetBinding.
// The spec is immutable, since permission to bind the set is checked on create only.
func ValidateManagedClusterSetBindingUpdate(binding, old *cluster.ManagedClusterSetBinding) field.ErrorList {
	return apivalidation.ValidateImmutableField(binding.Spec.ClusterSet, old.Spec.ClusterSet, clusterSetPath)
}

// ValidateManagedClusterSetBindingStatusUpdate validates an update of the status of a ManagedClusterSetBinding.
func ValidateManagedClusterSetBindingStatusUpdate(binding, old *cluster.ManagedClusterSetBinding) field.ErrorList {
	return ratchet.Update(binding, old, func(binding *cluster.ManagedClusterSetBinding) field.ErrorList {
		return validateConditions(binding.Status.Conditions)
	}, clusterv1beta2.Convert_cluster_ManagedClusterSetBinding_To_v1beta2_ManagedClusterSetBinding)
}
