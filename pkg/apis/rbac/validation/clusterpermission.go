// Package validation checks the types of the group rbac.open-cluster-management.io.
package validation

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/ratchet"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// The agent records a work in an object named <64 hexadecimal digits>-<work>,
// and the work of a ClusterPermission is named <name>-<5 digits>; neither may
// exceed the 253 bytes of a name.
const maxNameLength = 253 - (64 + 1) - (1 + 5)

// maxRequirements bounds the namespaceSelectors of a ClusterPermission, which are all compared
// with each namespace that changes on the cluster.
const maxRequirements = 1000

var specPath = field.NewPath("spec")

// ValidateClusterPermission checks a ClusterPermission that is about to be created.
func ValidateClusterPermission(cp *rbac.ClusterPermission) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&cp.ObjectMeta, true, validateName, field.NewPath("metadata"))
	return append(errs, validateSpec(cp)...)
}

// ValidateClusterPermissionUpdate checks an update of a ClusterPermission. Bad
// parts of the spec which the update does not touch are no reason to refuse it.
// The metadata of updates is left to the generic registry, which checks it for
// every kind.
func ValidateClusterPermissionUpdate(cp, old *rbac.ClusterPermission) field.ErrorList {
	if apiequality.Semantic.DeepEqual(cp.Spec, old.Spec) {
		return nil
	}
	errs := validateSpec(cp)
	if len(errs) == 0 {
		return nil
	}
	return withoutOldErrors(errs, validateSpec(old), cp, old)
}

// ValidateClusterPermissionStatusUpdate checks an update of the status of a ClusterPermission.
func ValidateClusterPermissionStatusUpdate(cp, old *rbac.ClusterPermission) field.ErrorList {
	errs := validateStatus(&cp.Status)
	if len(errs) == 0 {
		return nil
	}
	return withoutOldErrors(errs, validateStatus(&old.Status), cp, old)
}

func withoutOldErrors(errs, oldErrs field.ErrorList, cp, old *rbac.ClusterPermission) field.ErrorList {
	var versioned, versionedOld v1alpha1.ClusterPermission
	if v1alpha1.Convert_rbac_ClusterPermission_To_v1alpha1_ClusterPermission(cp, &versioned, nil) != nil ||
		v1alpha1.Convert_rbac_ClusterPermission_To_v1alpha1_ClusterPermission(old, &versionedOld, nil) != nil {
		return errs
	}
	return ratchet.Filter(errs, oldErrs, &versioned, &versionedOld)
}

func validateName(name string, prefix bool) []string {
	problems := apivalidation.NameIsDNSSubdomain(name, prefix)
	if len(name) > maxNameLength {
		problems = append(problems, fmt.Sprintf("must be no more than %d bytes, for names on the managed cluster are derived from it", maxNameLength))
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
	// References deliver roles that something else on the managed cluster may bind.
	if bindings == 0 && len(ptr.Deref(spec.RoleRefs, nil)) == 0 {
		errs = append(errs, field.Required(specPath,
			"no bindings are defined: give at least one of clusterRoleBinding, clusterRoleBindings, roleBindings or roleRefs"))
	}

	if requirements := requirementsOf(spec); requirements > maxRequirements {
		return append(errs, field.Forbidden(specPath, fmt.Sprintf(
			"the namespaceSelectors have %d requirements in total, where each selector counts as one more, may not have more than %d; use fewer selectors, or several ClusterPermissions", requirements, maxRequirements)))
	}
	rendered := newRenderedNames(cp.Name)
	if spec.ClusterRole != nil {
		errs = append(errs, validateRules(spec.ClusterRole.Rules, false, specPath.Child("clusterRole", "rules"))...)
		rendered.takeRole("ClusterRole", placement{}, cp.Name)
	}
	if spec.ClusterRoleBinding != nil {
		fldPath := specPath.Child("clusterRoleBinding")
		errs = append(errs, validateClusterRoleBinding(spec.ClusterRoleBinding, fldPath)...)
		errs = append(errs, rendered.takeBinding(placement{}, spec.ClusterRoleBinding.Name, fldPath)...)
	}
	for i := range ptr.Deref(spec.ClusterRoleBindings, nil) {
		binding, fldPath := &(*spec.ClusterRoleBindings)[i], specPath.Child("clusterRoleBindings").Index(i)
		errs = append(errs, validateClusterRoleBinding(binding, fldPath)...)
		errs = append(errs, rendered.takeBinding(placement{}, binding.Name, fldPath)...)
	}
	for i := range ptr.Deref(spec.Roles, nil) {
		role, fldPath := &(*spec.Roles)[i], specPath.Child("roles").Index(i)
		where, whereErrs := validatePlacement(role.Namespace, role.NamespaceSelector, fldPath)
		errs = append(errs, whereErrs...)
		errs = append(errs, validateRules(role.Rules, true, fldPath.Child("rules"))...)
		if len(whereErrs) == 0 && !rendered.takeRole("Role", where, cp.Name) {
			errs = append(errs, where.duplicate(fldPath))
		}
	}
	for i := range ptr.Deref(spec.RoleBindings, nil) {
		binding, fldPath := &(*spec.RoleBindings)[i], specPath.Child("roleBindings").Index(i)
		where, whereErrs := validatePlacement(binding.Namespace, binding.NamespaceSelector, fldPath)
		errs = append(errs, whereErrs...)
		errs = append(errs, validateBindingName(binding.Name, fldPath.Child("name"))...)
		errs = append(errs, validateRoleRef(binding.RoleRef, fldPath.Child("roleRef"))...)
		errs = append(errs, validateSubjects(binding.Subject, binding.Subjects, fldPath)...)
		if len(whereErrs) == 0 {
			errs = append(errs, rendered.takeBinding(where, binding.Name, fldPath)...)
		}
	}
	for i := range ptr.Deref(spec.RoleRefs, nil) {
		ref, fldPath := &(*spec.RoleRefs)[i], specPath.Child("roleRefs").Index(i)
		refErrs := validateHubRoleRef(ref, fldPath)
		errs = append(errs, refErrs...)
		if len(refErrs) == 0 && !rendered.takeRole(ref.Kind, placement{namespace: ref.Namespace}, ref.Name) {
			errs = append(errs, field.Duplicate(fldPath.Child("name"), ref.Name))
		}
	}
	return errs
}

// requirementsOf counts the namespaceSelectors of a spec and their requirements.
func requirementsOf(spec *rbac.ClusterPermissionSpec) int {
	count := 0
	add := func(selector *metav1.LabelSelector) {
		if selector != nil {
			count += 1 + len(selector.MatchLabels) + len(selector.MatchExpressions)
		}
	}
	for i := range ptr.Deref(spec.Roles, nil) {
		add((*spec.Roles)[i].NamespaceSelector)
	}
	for i := range ptr.Deref(spec.RoleBindings, nil) {
		add((*spec.RoleBindings)[i].NamespaceSelector)
	}
	return count
}

func validateClusterRoleBinding(binding *rbac.ClusterRoleBinding, fldPath *field.Path) field.ErrorList {
	errs := validateBindingName(binding.Name, fldPath.Child("name"))
	if ref := binding.RoleRef; ref != nil {
		errs = append(errs, validateClusterRoleRef(ref, fldPath.Child("roleRef"))...)
	}
	return append(errs, validateSubjects(binding.Subject, binding.Subjects, fldPath)...)
}

func validateBindingName(name string, fldPath *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	return validatePathSegment(name, fldPath)
}

func validatePathSegment(name string, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range content.IsPathSegmentName(name) {
		errs = append(errs, field.Invalid(fldPath, name, problem))
	}
	return errs
}

// placement is where on the managed cluster a namespaced object goes. The zero
// value is the place of cluster-scoped objects.
type placement struct {
	namespace string
	selector  string
	selected  bool
}

// duplicate is the error of the second object without a name of its own in the same place.
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
		errs = append(errs, field.Required(fldPath.Child("namespace"), "either namespace or namespaceSelector is needed"))
	case namespace != "" && selector != nil:
		errs = append(errs, field.Forbidden(fldPath.Child("namespaceSelector"), "may not be given together with namespace"))
	}
	if namespace != "" {
		errs = append(errs, validateNamespace(namespace, fldPath.Child("namespace"))...)
	}
	if selector == nil {
		return placement{namespace: namespace}, errs
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, fldPath.Child("namespaceSelector"))...)
	// One order of the same requirements for all. Selectors that select the same in
	// other words are merged when they are rendered.
	canonical := metav1.FormatLabelSelector(selector)
	return placement{selector: canonical, selected: true}, errs
}

func validateNamespace(namespace string, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range apivalidation.ValidateNamespaceName(namespace, false) {
		errs = append(errs, field.Invalid(fldPath, namespace, problem))
	}
	return errs
}

// renderedNames finds objects that would end up with the same name in the same
// place, where one of them would silently replace the other.
type renderedNames struct {
	defaultName string
	bindings    map[placedName]bool
	roles       map[placedName]bool
}

type placedName struct {
	kind  string
	where placement
	name  string
}

func newRenderedNames(defaultName string) *renderedNames {
	return &renderedNames{defaultName: defaultName, bindings: map[placedName]bool{}, roles: map[placedName]bool{}}
}

func (r *renderedNames) takeRole(kind string, where placement, name string) bool {
	key := placedName{kind: kind, where: where, name: name}
	taken := r.roles[key]
	r.roles[key] = true
	return !taken
}

func (r *renderedNames) takeBinding(where placement, name string, fldPath *field.Path) field.ErrorList {
	rendered := name
	if rendered == "" {
		rendered = r.defaultName
	}
	key := placedName{where: where, name: rendered}
	if r.bindings[key] {
		return field.ErrorList{field.Duplicate(fldPath.Child("name"), rendered)}
	}
	r.bindings[key] = true
	return nil
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rules == nil {
		errs = append(errs, field.Required(fldPath, "the list may be empty, but has to be there"))
	}
	for i, rule := range rules {
		errs = append(errs, validateRule(rule, namespaced, fldPath.Index(i))...)
	}
	return errs
}

func validateRule(rule rbacv1.PolicyRule, namespaced bool, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Verbs) == 0 {
		errs = append(errs, field.Required(fldPath.Child("verbs"), "at least one verb is needed"))
	}
	if len(rule.NonResourceURLs) > 0 {
		urls := fldPath.Child("nonResourceURLs")
		if namespaced {
			errs = append(errs, field.Forbidden(urls, "a Role grants access to resources of its namespace only; use clusterRole"))
		}
		if len(rule.APIGroups) > 0 || len(rule.Resources) > 0 || len(rule.ResourceNames) > 0 {
			errs = append(errs, field.Forbidden(urls, "a rule is either about resources or about URLs, not both"))
		}
		return errs
	}
	if len(rule.APIGroups) == 0 {
		errs = append(errs, field.Required(fldPath.Child("apiGroups"), "a rule about resources needs at least one API group; the core group is \"\""))
	}
	if len(rule.Resources) == 0 {
		errs = append(errs, field.Required(fldPath.Child("resources"), "a rule about resources needs at least one resource"))
	}
	return errs
}
