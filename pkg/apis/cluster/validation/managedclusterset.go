package validation

import (
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

// ManagedClusterSet validates ManagedClusterSets.
var ManagedClusterSet = validate.Rules[*cluster.ManagedClusterSet]{
	ClusterScoped: true, Name: validateSetName, Spec: validateSetSpec,
	Change: func(set, old *cluster.ManagedClusterSet) field.ErrorList {
		return apivalidation.ValidateImmutableField(set.Spec.ClusterSelector.SelectorType,
			old.Spec.ClusterSelector.SelectorType, selectorPath.Child("selectorType"))
	},
}

var namespacesPath = field.NewPath("spec", "managedNamespaces")

func validateSetSpec(set *cluster.ManagedClusterSet) field.ErrorList {
	return append(validateSelector(set), validateManagedNamespaces(set.Spec.ManagedNamespaces)...)
}

func validateManagedNamespaces(namespaces []clusterv1beta2.ManagedNamespaceConfig) field.ErrorList {
	if count := len(namespaces); count > clusterv1beta2.MaxManagedNamespaces {
		return field.ErrorList{field.TooMany(namespacesPath, count, clusterv1beta2.MaxManagedNamespaces)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, namespace := range namespaces {
		path := namespacesPath.Index(i).Child("name")
		nameErrs := validate.Unique(namespace.Name, seen, path)
		if len(nameErrs) == 0 {
			nameErrs = validate.Name(namespace.Name, path, apivalidation.ValidateNamespaceName)
		}
		errs = append(errs, nameErrs...)
	}
	return errs
}

var selectorPath = field.NewPath("spec", "clusterSelector")

// validateSetName bounds the name to the length of a label value, since clusters name their set in a label.
func validateSetName(name string, prefix bool) []string {
	errs := apivalidation.NameIsDNSSubdomain(name, prefix)
	if len(name) > utilvalidation.LabelValueMaxLength {
		errs = append(errs, utilvalidation.MaxLenError(utilvalidation.LabelValueMaxLength))
	}
	return errs
}

func validateSelector(set *cluster.ManagedClusterSet) field.ErrorList {
	selector := &set.Spec.ClusterSelector
	typePath, labelsPath := selectorPath.Child("selectorType"), selectorPath.Child("labelSelector")

	// The server creates these two sets, and clients rely on the clusters that they select.
	switch set.Name {
	case clusterv1beta2.DefaultClusterSet:
		if selector.SelectorType != clusterv1beta2.ExclusiveClusterSetLabel {
			return field.ErrorList{field.Invalid(typePath, selector.SelectorType,
				"must be ExclusiveClusterSetLabel: the ManagedClusterSet \"default\" contains the clusters without another set")}
		}
	case clusterv1beta2.GlobalClusterSet:
		const all = "the ManagedClusterSet \"global\" selects all clusters"
		if selector.SelectorType != clusterv1beta2.LabelSelector {
			return field.ErrorList{field.Invalid(typePath, selector.SelectorType, "must be LabelSelector: "+all)}
		}
		if selector.LabelSelector != nil && !isEmpty(selector.LabelSelector) {
			return field.ErrorList{field.Invalid(labelsPath, selector.LabelSelector, "must be empty: "+all)}
		}
	}

	types := []clusterv1beta2.SelectorType{clusterv1beta2.ExclusiveClusterSetLabel, clusterv1beta2.LabelSelector}
	switch {
	case !slices.Contains(types, selector.SelectorType):
		return field.ErrorList{field.NotSupported(typePath, selector.SelectorType, types)}
	case selector.SelectorType == clusterv1beta2.LabelSelector && selector.LabelSelector == nil:
		return field.ErrorList{field.Required(labelsPath, "must be set if selectorType is LabelSelector; {} selects all clusters")}
	case selector.SelectorType == clusterv1beta2.LabelSelector:
		return metav1validation.ValidateLabelSelector(selector.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, labelsPath)
	case selector.LabelSelector != nil && !isEmpty(selector.LabelSelector):
		// Some clients send an empty selector if they set none.
		return field.ErrorList{field.Forbidden(labelsPath, "may be set only if selectorType is LabelSelector")}
	}
	return nil
}

func isEmpty(selector *metav1.LabelSelector) bool {
	return len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0
}
