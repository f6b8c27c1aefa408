package clusterpermission

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

const (
	noNamespaceReason       = "the selector matches no namespace of the managed cluster"
	namespacesUnknownReason = "the agent of the managed cluster has not reported its namespaces"
)

// Namespace is a namespace of the managed cluster.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// HasSelectors reports whether the delivered or the current spec of a ClusterPermission
// contains a namespaceSelector.
func HasSelectors(cp *v1alpha1.ClusterPermission) bool {
	return len(labelSelectors(cp)) > 0
}

// Selectors returns the valid namespaceSelectors of the delivered and of the current spec
// of a ClusterPermission. A namespace is relevant to the ClusterPermission if one of them
// matches.
func Selectors(cp *v1alpha1.ClusterPermission) []labels.Selector {
	var out []labels.Selector
	for _, labelSelector := range labelSelectors(cp) {
		if selector, err := metav1.LabelSelectorAsSelector(labelSelector); err == nil {
			out = append(out, selector)
		}
	}
	return out
}

func labelSelectors(cp *v1alpha1.ClusterPermission) []*metav1.LabelSelector {
	var out []*metav1.LabelSelector
	for _, spec := range specs(cp) {
		for _, role := range ptr.Deref(spec.Roles, nil) {
			if role.NamespaceSelector != nil {
				out = append(out, role.NamespaceSelector)
			}
		}
		for _, binding := range ptr.Deref(spec.RoleBindings, nil) {
			if binding.NamespaceSelector != nil {
				out = append(out, binding.NamespaceSelector)
			}
		}
	}
	return out
}

// namespaces returns the sorted names of the namespaces of a role or binding. It returns
// none once the budget is exceeded.
func (r *renderer) namespaces(namespace string, selector *metav1.LabelSelector, fldPath *field.Path) []string {
	if selector == nil {
		return []string{namespace}
	}
	names := r.selected(selector, fldPath.Child("namespaceSelector"))
	r.budget.steps += placementSteps * int64(len(names))
	if r.budget.exceeded() {
		return nil
	}
	return names
}

func (r *renderer) selected(labelSelector *metav1.LabelSelector, fldPath *field.Path) []string {
	selector, err := metav1.LabelSelectorAsSelector(labelSelector)
	if err != nil {
		r.leaveOut(fldPath, err.Error()) // validation rejects it
		return nil
	}
	if !r.in.NamespacesKnown {
		r.result.WaitingForNamespaces = true
		r.leaveOut(fldPath, namespacesUnknownReason)
		return nil
	}
	names := r.matching(selector)
	r.result.Selections = append(r.result.Selections, Selection{Path: fldPath.String(), Count: len(names)})
	if len(names) == 0 {
		r.leaveOut(fldPath, noNamespaceReason)
	}
	return names
}

// matching matches each distinct selector once, since the roles and bindings of a spec
// often have the same selector.
func (r *renderer) matching(selector labels.Selector) []string {
	key := selector.String()
	if names, known := r.selections[key]; known {
		return names
	}
	r.budget.steps += comparisonSteps(selector) * int64(len(r.in.Namespaces))
	if r.budget.exceeded() {
		return nil
	}
	var names []string
	for _, namespace := range r.in.Namespaces {
		if selector.Matches(labels.Set(namespace.Labels)) {
			names = append(names, namespace.Name)
		}
	}
	slices.Sort(names)
	r.selections[key] = names
	return names
}

func comparisonSteps(selector labels.Selector) int64 {
	requirements, _ := selector.Requirements()
	steps := requirementSteps
	for _, requirement := range requirements {
		steps += requirementSteps + valueSteps*len(requirement.ValuesUnsorted())
	}
	return int64(steps)
}
