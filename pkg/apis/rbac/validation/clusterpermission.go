// Package validation validates the objects of the group rbac.open-cluster-management.io.
package validation

import (
	"cmp"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

// maxNameLength leaves room for two names of at most 253 bytes: the ManifestWork of a ClusterPermission is named
// <name>-<5 digits>, and the agent creates an AppliedManifestWork named <64 hexadecimal digits>-<ManifestWork>.
const maxNameLength = 253 - (64 + 1) - (1 + 5)

// maxRequirements bounds the namespaceSelectors of a ClusterPermission. Each change of a namespace
// on the cluster is compared with all of them.
const maxRequirements = 1000

var specPath = field.NewPath("spec")

// ClusterPermission validates ClusterPermissions.
var ClusterPermission = validate.Rules[*rbac.ClusterPermission]{Name: validateName, Spec: validateSpec, Status: validateStatus}

// ClusterNamespace validates ClusterNamespaces, which have the names of namespaces on the managed cluster.
var ClusterNamespace = validate.Rules[*rbac.ClusterNamespace]{Name: apivalidation.ValidateNamespaceName}

func validateName(name string, prefix bool) []string {
	problems := apivalidation.NameIsDNSSubdomain(name, prefix)
	if len(name) > maxNameLength {
		problems = append(problems, fmt.Sprintf("must be no more than %d bytes: the names of the ManifestWork and the AppliedManifestWork are derived from it", maxNameLength))
	}
	return problems
}

func validateSpec(cp *rbac.ClusterPermission) field.ErrorList {
	spec := &cp.Spec
	var errs field.ErrorList

	bindings := len(ptr.Deref(spec.ClusterRoleBindings, nil)) + len(ptr.Deref(spec.RoleBindings, nil))
	if spec.ClusterRoleBinding != nil {
		bindings++
	}
	// The roles of roleRefs may be bound by other bindings on the managed cluster.
	if bindings == 0 && len(ptr.Deref(spec.RoleRefs, nil)) == 0 {
		errs = append(errs, field.Required(specPath,
			"at least one of clusterRoleBinding, clusterRoleBindings, roleBindings and roleRefs must be set"))
	}

	if requirements := countRequirements(spec); requirements > maxRequirements {
		return append(errs, field.Forbidden(specPath, fmt.Sprintf(
			"the namespaceSelectors must have at most %d requirements in total, counting one for each selector, found %d; use fewer selectors or several ClusterPermissions", maxRequirements, requirements)))
	}
	rendered := renderedNames{}
	if spec.ClusterRole != nil {
		errs = append(errs, validateRules(spec.ClusterRole.Rules, false, specPath.Child("clusterRole", "rules"))...)
		rendered.add("ClusterRole", placement{}, cp.Name)
	}
	for fldPath, binding := range spec.AllClusterRoleBindings() {
		errs = append(errs, validate.OptionalName(binding.Name, fldPath.Child("name"), validate.PathSegment)...)
		if ref := binding.RoleRef; ref != nil {
			errs = append(errs, validateClusterRoleRef(ref, fldPath.Child("roleRef"))...)
		}
		errs = append(errs, validateSubjects(binding.Subject, binding.Subjects, fldPath)...)
		errs = append(errs, rendered.addBinding(placement{}, cmp.Or(binding.Name, cp.Name), fldPath)...)
	}
	for i := range ptr.Deref(spec.Roles, nil) {
		role, fldPath := &(*spec.Roles)[i], specPath.Child("roles").Index(i)
		where, whereErrs := validatePlacement(role.Namespace, role.NamespaceSelector, fldPath)
		errs = append(errs, whereErrs...)
		errs = append(errs, validateRules(role.Rules, true, fldPath.Child("rules"))...)
		if len(whereErrs) == 0 && !rendered.add("Role", where, cp.Name) {
			errs = append(errs, where.duplicate(fldPath))
		}
	}
	for i := range ptr.Deref(spec.RoleBindings, nil) {
		binding, fldPath := &(*spec.RoleBindings)[i], specPath.Child("roleBindings").Index(i)
		where, whereErrs := validatePlacement(binding.Namespace, binding.NamespaceSelector, fldPath)
		errs = append(errs, whereErrs...)
		errs = append(errs, validate.OptionalName(binding.Name, fldPath.Child("name"), validate.PathSegment)...)
		errs = append(errs, validateRoleRef(binding.RoleRef, fldPath.Child("roleRef"))...)
		errs = append(errs, validateSubjects(binding.Subject, binding.Subjects, fldPath)...)
		if len(whereErrs) == 0 {
			errs = append(errs, rendered.addBinding(where, cmp.Or(binding.Name, cp.Name), fldPath)...)
		}
	}
	for i := range ptr.Deref(spec.RoleRefs, nil) {
		ref, fldPath := &(*spec.RoleRefs)[i], specPath.Child("roleRefs").Index(i)
		refErrs := validateHubRoleRef(ref, fldPath)
		errs = append(errs, refErrs...)
		if len(refErrs) == 0 && !rendered.add(ref.Kind, placement{namespace: ref.Namespace}, ref.Name) {
			errs = append(errs, field.Duplicate(fldPath.Child("name"), ref.Name))
		}
	}
	return errs
}

// countRequirements returns the number of namespaceSelectors of a spec and their requirements.
func countRequirements(spec *v1alpha1.ClusterPermissionSpec) int {
	count := 0
	for i := range ptr.Deref(spec.Roles, nil) {
		count += sizeOf((*spec.Roles)[i].NamespaceSelector)
	}
	for i := range ptr.Deref(spec.RoleBindings, nil) {
		count += sizeOf((*spec.RoleBindings)[i].NamespaceSelector)
	}
	return count
}

// sizeOf returns the number of requirements of a selector and one for the selector, or 0 for nil.
func sizeOf(selector *metav1.LabelSelector) int {
	if selector == nil {
		return 0
	}
	return 1 + len(selector.MatchLabels) + len(selector.MatchExpressions)
}

// placement identifies the namespaces of a namespaced object on the managed cluster. The
// zero value is for cluster-scoped objects.
type placement struct {
	namespace string
	selector  string
	selected  bool
}

// duplicate returns the error for a second object of the same name in the same namespaces.
func (p placement) duplicate(fldPath *field.Path) *field.Error {
	if p.selected {
		return field.Duplicate(fldPath.Child("namespaceSelector"), p.selector)
	}
	return field.Duplicate(fldPath.Child("namespace"), p.namespace)
}

func validatePlacement(namespace string, selector *metav1.LabelSelector, fldPath *field.Path) (placement, field.ErrorList) {
	var errs field.ErrorList
	switch {
	case namespace == "" && selector == nil:
		errs = append(errs, field.Required(fldPath.Child("namespace"), "either namespace or namespaceSelector must be set"))
	case namespace != "" && selector != nil:
		errs = append(errs, field.Forbidden(fldPath.Child("namespaceSelector"), "must not be set together with namespace"))
	}
	errs = append(errs, validate.OptionalName(namespace, fldPath.Child("namespace"), apivalidation.ValidateNamespaceName)...)
	if selector == nil {
		return placement{namespace: namespace}, errs
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, fldPath.Child("namespaceSelector"))...)
	// This form sorts the requirements. The renderer merges different selectors that select the same namespaces.
	return placement{selector: metav1.FormatLabelSelector(selector), selected: true}, errs
}

// renderedNames finds objects of the same name in the same namespaces. One of them would silently replace the other.
type renderedNames map[placedName]bool

type placedName struct {
	kind  string
	where placement
	name  string
}

// add reports whether the object is new.
func (r renderedNames) add(kind string, where placement, name string) bool {
	key := placedName{kind, where, name}
	found := r[key]
	r[key] = true
	return !found
}

func (r renderedNames) addBinding(where placement, name string, fldPath *field.Path) field.ErrorList {
	if !r.add("binding", where, name) {
		return field.ErrorList{field.Duplicate(fldPath.Child("name"), name)}
	}
	return nil
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rules == nil {
		errs = append(errs, field.Required(fldPath, "must be set; an empty list grants nothing"))
	}
	for i, rule := range rules {
		errs = append(errs, validateRule(rule, namespaced, fldPath.Index(i))...)
	}
	return errs
}

func validateRule(rule rbacv1.PolicyRule, namespaced bool, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(fldPath.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(rule.NonResourceURLs) > 0 {
		urls := fldPath.Child("nonResourceURLs")
		if namespaced {
			errs = append(errs, field.Forbidden(urls, "namespaced rules cannot apply to non-resource URLs; use clusterRole"))
		}
		if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Forbidden(urls, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(fldPath.Child("apiGroups"), "resource rules must supply at least one API group; the core group is \"\""))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(fldPath.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}
