package validation

import (
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
)

// ValidateManagedClusterSet checks a ManagedClusterSet that is about to be created.
func ValidateManagedClusterSet(set *cluster.ManagedClusterSet) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&set.ObjectMeta, false, validateSetName, field.NewPath("metadata"))
	return append(errs, validateSetSpec(set)...)
}

// ValidateManagedClusterSetUpdate checks an update of a ManagedClusterSet. Bad
// parts of the spec which the update does not touch are no reason to refuse it.
func ValidateManagedClusterSetUpdate(set, old *cluster.ManagedClusterSet) field.ErrorList {
	if apiequality.Semantic.DeepEqual(set.Spec, old.Spec) {
		return nil
	}
	errs := setWithoutOldErrors(validateSetSpec(set), validateSetSpec(old), set, old)
	return append(errs, apivalidation.ValidateImmutableField(set.Spec.ClusterSelector.SelectorType,
		old.Spec.ClusterSelector.SelectorType, selectorPath.Child("selectorType"))...)
}

// ValidateManagedClusterSetStatusUpdate checks an update of the status of a ManagedClusterSet.
func ValidateManagedClusterSetStatusUpdate(set, old *cluster.ManagedClusterSet) field.ErrorList {
	return setWithoutOldErrors(validateConditions(set.Status.Conditions), validateConditions(old.Status.Conditions), set, old)
}

var namespacesPath = field.NewPath("spec", "managedNamespaces")

func validateSetSpec(set *cluster.ManagedClusterSet) field.ErrorList {
	return append(validateSelector(set), validateManagedNamespaces(set.Spec.ManagedNamespaces)...)
}

func validateManagedNamespaces(namespaces []cluster.ManagedNamespaceConfig) field.ErrorList {
	if count := len(namespaces); count > clusterv1beta2.MaxManagedNamespaces {
		return field.ErrorList{field.TooMany(namespacesPath, count, clusterv1beta2.MaxManagedNamespaces)}
	}
	var errs field.ErrorList
	taken := map[string]bool{}
	for i, namespace := range namespaces {
		path := namespacesPath.Index(i).Child("name")
		switch name := namespace.Name; {
		case name == "":
			errs = append(errs, field.Required(path, ""))
		case taken[name]:
			errs = append(errs, field.Duplicate(path, name))
		default:
			for _, message := range apivalidation.ValidateNamespaceName(name, false) {
				errs = append(errs, field.Invalid(path, name, message))
			}
		}
		taken[namespace.Name] = true
	}
	return errs
}

var selectorPath = field.NewPath("spec", "clusterSelector")

// validateSetName allows what an object may be named after as long as a label can
// hold it, since a label puts clusters into the set.
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

	// Everybody relies on which clusters these two have.
	switch set.Name {
	case clusterv1beta2.DefaultClusterSet:
		if selector.SelectorType != cluster.ExclusiveClusterSetLabel {
			return field.ErrorList{field.Invalid(typePath, selector.SelectorType,
				"must be ExclusiveClusterSetLabel: the set named default has the clusters that nobody put into another set")}
		}
	case clusterv1beta2.GlobalClusterSet:
		const all = "the set named global has all clusters"
		if selector.SelectorType != cluster.LabelSelector {
			return field.ErrorList{field.Invalid(typePath, selector.SelectorType, "must be LabelSelector: "+all)}
		}
		if selector.LabelSelector != nil && !isEmpty(selector.LabelSelector) {
			return field.ErrorList{field.Invalid(labelsPath, selector.LabelSelector, "must be empty: "+all)}
		}
	}

	types := []cluster.SelectorType{cluster.ExclusiveClusterSetLabel, cluster.LabelSelector}
	switch {
	case !slices.Contains(types, selector.SelectorType):
		return field.ErrorList{field.NotSupported(typePath, selector.SelectorType, types)}
	case selector.SelectorType == cluster.LabelSelector && selector.LabelSelector == nil:
		return field.ErrorList{field.Required(labelsPath, "the selector type LabelSelector needs it; an empty one, {}, selects all clusters")}
	case selector.SelectorType == cluster.LabelSelector:
		return metav1validation.ValidateLabelSelector(selector.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, labelsPath)
	case selector.LabelSelector != nil && !isEmpty(selector.LabelSelector):
		// An empty one is what some clients send for none.
		return field.ErrorList{field.Forbidden(labelsPath, "only with the selector type LabelSelector")}
	}
	return nil
}

func isEmpty(selector *metav1.LabelSelector) bool {
	return len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0
}

func validateConditions(conditions []metav1.Condition) field.ErrorList {
	return metav1validation.ValidateConditions(conditions, field.NewPath("status", "conditions"))
}

func setWithoutOldErrors(errs, oldErrs field.ErrorList, set, old *cluster.ManagedClusterSet) field.ErrorList {
	var versioned, versionedOld clusterv1beta2.ManagedClusterSet
	if clusterv1beta2.Convert_cluster_ManagedClusterSet_To_v1beta2_ManagedClusterSet(set, &versioned, nil) != nil ||
		clusterv1beta2.Convert_cluster_ManagedClusterSet_To_v1beta2_ManagedClusterSet(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, oldErrs, &versioned, &versionedOld)
}
