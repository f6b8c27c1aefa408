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

// ValidateManagedClusterSetBinding checks a ManagedClusterSetBinding that is about to be created.
func ValidateManagedClusterSetBinding(binding *cluster.ManagedClusterSetBinding) field.ErrorList {
	metaPath := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMeta(&binding.ObjectMeta, true, validateSetName, metaPath)
	switch set := binding.Spec.ClusterSet; set {
	case "":
		errs = append(errs, field.Required(clusterSetPath, ""))
	case binding.Name:
	default:
		errs = append(errs, field.Invalid(metaPath.Child("name"), binding.Name,
			fmt.Sprintf("must be the name of the set that is bound, %q as in %s", set, clusterSetPath)))
	}
	return errs
}

// ValidateManagedClusterSetBindingUpdate checks an update of a ManagedClusterSetBinding,
// which may change nothing of the spec: whoever bound the set was allowed to
// bind that set.
func ValidateManagedClusterSetBindingUpdate(binding, old *cluster.ManagedClusterSetBinding) field.ErrorList {
	return apivalidation.ValidateImmutableField(binding.Spec.ClusterSet, old.Spec.ClusterSet, clusterSetPath)
}

// ValidateManagedClusterSetBindingStatusUpdate checks an update of the status of a ManagedClusterSetBinding.
func ValidateManagedClusterSetBindingStatusUpdate(binding, old *cluster.ManagedClusterSetBinding) field.ErrorList {
	errs := validateConditions(binding.Status.Conditions)
	if len(errs) == 0 {
		return nil
	}
	var versioned, versionedOld clusterv1beta2.ManagedClusterSetBinding
	if clusterv1beta2.Convert_cluster_ManagedClusterSetBinding_To_v1beta2_ManagedClusterSetBinding(binding, &versioned, nil) != nil ||
		clusterv1beta2.Convert_cluster_ManagedClusterSetBinding_To_v1beta2_ManagedClusterSetBinding(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, validateConditions(old.Status.Conditions), &versioned, &versionedOld)
}
