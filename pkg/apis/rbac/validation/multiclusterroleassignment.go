package validation

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
)

// maxAssignmentName is the maximum length of the name of a role assignment in bytes.
const maxAssignmentName = 253

var assignmentsPath = specPath.Child("roleAssignments")

// MulticlusterRoleAssignment validates MulticlusterRoleAssignments.
var MulticlusterRoleAssignment = validate.Rules[*rbac.MulticlusterRoleAssignment]{
	Name: apivalidation.NameIsDNSSubdomain, Spec: validateAssignmentSpec, Status: validateAssignmentStatus,
}

func validateAssignmentSpec(a *rbac.MulticlusterRoleAssignment) field.ErrorList {
	errs := validateAssignmentSubject(&a.Spec.Subject, specPath.Child("subject"))
	switch n := len(a.Spec.RoleAssignments); {
	case n == 0:
		return append(errs, field.Required(assignmentsPath, "at least one role assignment is required"))
	case n > v1beta1.MaxRoleAssignments:
		return append(errs, field.TooMany(assignmentsPath, n, v1beta1.MaxRoleAssignments))
	}
	namespaces, references := 0, 0
	for i := range a.Spec.RoleAssignments {
		namespaces += len(a.Spec.RoleAssignments[i].TargetNamespaces)
		selection := &a.Spec.RoleAssignments[i].ClusterSelection
		references += len(selection.Placements) + len(selection.ClusterSets) + sizeOf(selection.LabelSelector)
	}
	if references > v1beta1.MaxReferences {
		return append(errs, field.Forbidden(assignmentsPath, fmt.Sprintf(
			"all role assignments together must have at most %d placements, clusterSets and requirements of label selectors, found %d", v1beta1.MaxReferences, references)))
	}
	if namespaces > v1beta1.MaxTargetNamespaces {
		return append(errs, field.Forbidden(assignmentsPath, fmt.Sprintf(
			"all role assignments together must have at most %d targetNamespaces, found %d", v1beta1.MaxTargetNamespaces, namespaces)))
	}
	names := map[string]bool{}
	for i := range a.Spec.RoleAssignments {
		assignment, fldPath := &a.Spec.RoleAssignments[i], assignmentsPath.Index(i)
		if len(assignment.Name) > maxAssignmentName {
			errs = append(errs, field.TooLong(fldPath.Child("name"), assignment.Name, maxAssignmentName))
		} else {
			errs = append(errs, validate.Unique(assignment.Name, names, fldPath.Child("name"))...)
		}
		errs = append(errs, validate.RequiredName(assignment.ClusterRole, fldPath.Child("clusterRole"), validate.PathSegment)...)
		targets := map[string]bool{}
		for j, namespace := range assignment.TargetNamespaces {
			path := fldPath.Child("targetNamespaces").Index(j)
			if invalid := validate.RequiredName(namespace, path, apivalidation.ValidateNamespaceName); len(invalid) > 0 {
				errs = append(errs, invalid...)
				continue
			}
			errs = append(errs, validate.Unique(namespace, targets, path)...)
		}
		errs = append(errs, validateSelection(&assignment.ClusterSelection, fldPath.Child("clusterSelection"))...)
	}
	return errs
}

func validateAssignmentSubject(subject *v1beta1.Subject, fldPath *field.Path) field.ErrorList {
	switch subject.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
		if subject.Namespace != nil {
			return field.ErrorList{field.Forbidden(fldPath.Child("namespace"), "must not be set for a "+subject.Kind)}
		}
	case rbacv1.ServiceAccountKind:
	default:
		return validate.Supported(subject.Kind, fldPath.Child("kind"), rbacv1.GroupKind, rbacv1.ServiceAccountKind, rbacv1.UserKind)
	}
	return validateSubject(rbacv1.Subject{
		APIGroup: ptr.Deref(subject.APIGroup, ""), Kind: subject.Kind, Name: subject.Name, Namespace: ptr.Deref(subject.Namespace, ""),
	}, fldPath)
}

func validateSelection(selection *v1beta1.ClusterSelection, fldPath *field.Path) field.ErrorList {
	errs := validate.Supported(selection.Type, fldPath.Child("type"), v1beta1.SelectClusterSets, v1beta1.SelectLabels, v1beta1.SelectPlacements)
	if len(errs) > 0 {
		return errs
	}
	check := func(name string, set bool) {
		switch {
		case set && name != selection.Type:
			errs = append(errs, field.Forbidden(fldPath.Child(name), fmt.Sprintf("must not be set if type is %s", selection.Type)))
		case !set && name == selection.Type:
			errs = append(errs, field.Required(fldPath.Child(name), fmt.Sprintf("must be set if type is %s", selection.Type)))
		}
	}
	check(v1beta1.SelectPlacements, len(selection.Placements) > 0)
	check(v1beta1.SelectClusterSets, len(selection.ClusterSets) > 0)
	check(v1beta1.SelectLabels, selection.LabelSelector != nil)
	for i, placement := range selection.Placements {
		path := fldPath.Child("placements").Index(i)
		errs = append(errs, validate.RequiredName(placement.Name, path.Child("name"), apivalidation.NameIsDNSSubdomain)...)
		errs = append(errs, validate.RequiredName(placement.Namespace, path.Child("namespace"), apivalidation.ValidateNamespaceName)...)
	}
	for i, set := range selection.ClusterSets {
		errs = append(errs, validate.RequiredName(set, fldPath.Child("clusterSets").Index(i), apivalidation.NameIsDNSSubdomain)...)
	}
	if selector := selection.LabelSelector; selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, fldPath.Child("labelSelector"))...)
	}
	return errs
}

func validateAssignmentStatus(a *rbac.MulticlusterRoleAssignment) field.ErrorList {
	status, fldPath := &a.Status, field.NewPath("status")
	var errs field.ErrorList
	names := map[string]bool{}
	for i, assignment := range status.RoleAssignments {
		path := fldPath.Child("roleAssignments").Index(i)
		errs = append(errs, validate.Unique(assignment.Name, names, path.Child("name"))...)
		errs = append(errs, validate.Supported(assignment.Status, path.Child("status"), v1beta1.AssignmentActive, v1beta1.AssignmentError, v1beta1.AssignmentPending)...)
	}
	if status.Clusters != nil {
		for i, failing := range status.Clusters.Failing {
			errs = append(errs, validate.Required(failing.Name, fldPath.Child("clusters", "failing").Index(i).Child("name"))...)
		}
	}
	return errs
}
