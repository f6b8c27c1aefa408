package clusterpermission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/permissions"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// Condition types and reasons of a ClusterPermission. Those that the upstream controller also uses
// have the same spelling.
const (
	conditionValidateRolesExist        = "ValidateRolesExist"
	conditionValidateClusterRolesExist = "ValidateClusterRolesExist"

	reasonValid                    = "Valid"
	reasonNotInClusterNamespace    = "FailedValidationNotInManagedClusterNamespace"
	reasonNoBindings               = "FailedValidationNoBindingsDefined"
	reasonManifestWorkCreated      = "ManifestWorkCreated"
	reasonManifestWorkNotCreated   = "ManifestWorkNotCreated"
	reasonManifestWorkBeingRemoved = "ManifestWorkBeingRemoved"
	reasonNothingToDeliver         = "NothingToDeliver"
	reasonWaitingForCluster        = "WaitingForManagedCluster"
	reasonFailedBuildManifestWork  = "FailedBuildManifestWork"
	reasonApplyNotComplete         = "ApplyRBACManifestWorkNotComplete"
	reasonDelivered                = "EverythingDelivered"
	reasonPartlyDelivered          = "PartlyDelivered"
	reasonAllRolesFound            = "AllRolesFound"
	reasonRolesNotFound            = "RolesNotFound"
	reasonAllClusterRolesFound     = "AllClusterRolesFound"
	reasonClusterRolesNotFound     = "ClusterRolesNotFound"
	reasonAppliedManifestComplete  = "AppliedManifestComplete"
	reasonFailedApplyManifest      = "FailedApplyManifest"
	reasonFailedGetManifestApplied = "FailedGetManifestCondition"
	reasonAllSubjectsPresent       = "AllSubjectsPresent"
	reasonSubjectsAbsent           = "SubjectsAbsent"
	reasonNamespacesMatched        = "NamespacesMatched"
	reasonNoNamespaceMatches       = "NoNamespaceMatches"
	reasonNamespacesNotReported    = "NamespacesNotReported"
	reasonAllRoleRefsPresent       = "AllRoleRefsPresent"
	reasonRoleRefsNotFound         = "RoleRefsNotFound"
	reasonApproved                 = "Approved"
	reasonApprovalPending          = "ApprovalPending"
)

// IsIntermediate reports whether a condition of a ClusterPermission says only that a step is not finished yet.
func IsIntermediate(condition metav1.Condition) bool {
	switch condition.Reason {
	case reasonApplyNotComplete, reasonManifestWorkBeingRemoved, reasonApprovalPending, reasonNamespacesNotReported, reasonWaitingForCluster:
		return true
	case reasonFailedBuildManifestWork: // the reason of the condition FullyDelivered repeats it
		return condition.Status == metav1.ConditionUnknown
	}
	return false
}

// observation is the observed state from which the status of a ClusterPermission is computed.
type observation struct {
	// clusterExists is true if a ManagedCluster with the name of the namespace exists.
	clusterExists bool
	// result is the rendering, or nil if the ClusterPermission cannot be rendered.
	result *render.Result
	// work is the stored ManifestWork, or nil if none exists.
	work *workv1.ManifestWork
	// err is the error of rendering or writing, if any.
	err error
}

// newStatus returns the status for an observation. A condition whose status does not change keeps its
// lastTransitionTime.
func newStatus(permission *rbacv1alpha1.ClusterPermission, seen observation) rbacv1alpha1.ClusterPermissionStatus {
	status := *permission.Status.DeepCopy()
	delivered, generation := permission.Delivered()
	spec := delivered
	if delivered == nil {
		spec, generation = &permission.Spec, permission.Generation
	}
	// The conditions observe the delivered generation, which may be older than the pending one.
	set := func(conditionType string, ok metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: ok, Reason: reason, Message: clip(message), ObservedGeneration: generation,
		})
	}
	setApproved(&status, permission)

	switch {
	case !seen.clusterExists:
		set(rbacv1alpha1.ConditionValidation, metav1.ConditionFalse, reasonNotInClusterNamespace,
			fmt.Sprintf("ManagedCluster %q does not exist or is being deleted. Changes are delivered when the cluster joins.", permission.Namespace))
	case !hasBindings(spec) && spec.RoleRefs == nil:
		set(rbacv1alpha1.ConditionValidation, metav1.ConditionFalse, reasonNoBindings,
			"The spec has no bindings, so it grants nothing.")
	default:
		set(rbacv1alpha1.ConditionValidation, metav1.ConditionTrue, reasonValid, "The ClusterPermission can be delivered.")
	}

	if seen.result == nil {
		message := "The ClusterPermission is not rendered yet."
		if seen.err != nil {
			message = seen.err.Error()
		}
		set(rbacv1alpha1.ConditionRBACManifestWorkCreated, metav1.ConditionFalse, reasonFailedBuildManifestWork, message)
		set(rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse, reasonFailedBuildManifestWork, message)
		set(rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionUnknown, reasonFailedBuildManifestWork, message)
		for _, conditionType := range inputConditions {
			if meta.FindStatusCondition(status.Conditions, conditionType) != nil {
				set(conditionType, metav1.ConditionUnknown, reasonFailedBuildManifestWork, message)
			}
		}
		return status
	}

	setDelivered(set, permission, seen)
	if delivered != nil {
		setInputConditions(set, &status, spec, seen.result)
	} else {
		for _, conditionType := range inputConditions {
			meta.RemoveStatusCondition(&status.Conditions, conditionType)
		}
	}
	setCreated(set, permission, seen)
	switch {
	case seen.err != nil && seen.work != nil:
		set(rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse, reasonApplyNotComplete,
			"The ManifestWork is not up to date.\n"+hint(seen.work))
	case seen.waits():
		set(rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse, reasonApplyNotComplete, waitingMessage(permission))
	default:
		setApplied(set, seen.work)
	}
	if permissions.Reported(seen.work) {
		status.ResourceStatus = resourceStatus(permission.Status.ResourceStatus, generation, seen)
		setRolesExist(set, &status, spec, seen.work)
	} else if seen.work == nil {
		status.ResourceStatus = nil
		removeRolesExist(&status)
	}
	return status
}

// waits reports whether the ClusterPermission waits for its cluster to join.
func (o observation) waits() bool { return !o.clusterExists && o.work == nil }

func waitingMessage(permission *rbacv1alpha1.ClusterPermission) string {
	return fmt.Sprintf("The ClusterPermission is delivered when cluster %q joins.", permission.Namespace)
}

// setter sets a condition of the delivered generation.
type setter func(conditionType string, ok metav1.ConditionStatus, reason, message string)

// setDelivered sets the condition FullyDelivered.
func setDelivered(set setter, permission *rbacv1alpha1.ClusterPermission, seen observation) {
	undelivered := seen.result.Undelivered
	switch {
	case seen.waits():
		set(rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse, reasonWaitingForCluster, waitingMessage(permission))
	case len(undelivered) > 0:
		parts := make([]string, 0, len(undelivered))
		for _, part := range undelivered {
			parts = append(parts, part.Path+": "+part.Reason)
		}
		set(rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse, reasonPartlyDelivered, "Not delivered: "+strings.Join(parts, "; "))
	default:
		set(rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionTrue, reasonDelivered, "The ManifestWork contains every part of the spec.")
	}
}

// setCreated sets the condition RBACManifestWorkCreated.
func setCreated(set setter, permission *rbacv1alpha1.ClusterPermission, seen observation) {
	ok, reason, message := metav1.ConditionFalse, "", ""
	switch {
	case seen.err != nil:
		reason, message = reasonManifestWorkNotCreated, seen.err.Error()
	case seen.work != nil && seen.work.DeletionTimestamp != nil:
		reason = reasonManifestWorkBeingRemoved
		message = fmt.Sprintf("ManifestWork %s/%s is being deleted. The agent of the managed cluster removes the applied objects.", seen.work.Namespace, seen.work.Name)
	case seen.work == nil && isPending(permission):
		reason, message = reasonApprovalPending, "The ClusterPermission is not delivered until it is approved."
	case seen.waits():
		reason, message = reasonWaitingForCluster, waitingMessage(permission)
	case seen.work == nil:
		reason, message = reasonNothingToDeliver, "No part of the spec can be delivered."
	default:
		ok, reason = metav1.ConditionTrue, reasonManifestWorkCreated
		message = fmt.Sprintf("ManifestWork %s/%s is stored on the hub.", seen.work.Namespace, seen.work.Name)
	}
	set(rbacv1alpha1.ConditionRBACManifestWorkCreated, ok, reason, message)
}

// setApproved sets the condition Approved if the current spec requires or required approval.
func setApproved(status *rbacv1alpha1.ClusterPermissionStatus, permission *rbacv1alpha1.ClusterPermission) {
	condition := metav1.Condition{Type: rbacv1alpha1.ConditionApproved, ObservedGeneration: permission.Generation}
	approval := permission.Status.Approval
	switch {
	case isPending(permission):
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonApprovalPending
		condition.Message = fmt.Sprintf("Generation %d by %s waits for approval. Nothing is delivered.", approval.Pending.Generation, approval.Pending.RequestedBy)
		if approval.Delivered != nil {
			condition.Message = fmt.Sprintf("Generation %d by %s waits for approval. Generation %d stays delivered.",
				approval.Pending.Generation, approval.Pending.RequestedBy, approval.Delivered.Generation)
		}
	case approval != nil && approval.Approved != nil && approval.Approved.Generation == permission.Generation:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonApproved
		condition.Message = fmt.Sprintf("Approved by %s.", approval.Approved.ApprovedBy)
	default:
		meta.RemoveStatusCondition(&status.Conditions, rbacv1alpha1.ConditionApproved)
		return
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}

// isPending reports whether the current spec waits for approval.
func isPending(permission *rbacv1alpha1.ClusterPermission) bool {
	return permission.Status.Approval != nil && permission.Status.Approval.Pending != nil
}

// inputConditions are the conditions of the objects on which a ClusterPermission depends.
var inputConditions = []string{
	rbacv1alpha1.ConditionSubjectPresent, rbacv1alpha1.ConditionRoleRefsPresent, rbacv1alpha1.ConditionNamespacesSelected,
}

// setInputConditions sets the conditions of the objects on which a ClusterPermission depends.
func setInputConditions(set setter, status *rbacv1alpha1.ClusterPermissionStatus, spec *rbacv1alpha1.ClusterPermissionSpec, result *render.Result) {
	if len(result.AbsentSubjects) > 0 {
		set(rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionFalse, reasonSubjectsAbsent,
			"The bindings omit subjects: "+strings.Join(result.AbsentSubjects, "; "))
	} else {
		set(rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionTrue, reasonAllSubjectsPresent,
			"Every ManagedServiceAccount in the bindings has a ServiceAccount on the managed cluster.")
	}

	missing := result.MissingRoleRefs
	switch {
	case len(missing) > 0:
		set(rbacv1alpha1.ConditionRoleRefsPresent, metav1.ConditionFalse, reasonRoleRefsNotFound,
			"Not found on the hub: "+strings.Join(missing, ", "))
	case spec.RoleRefs != nil && len(*spec.RoleRefs) > 0:
		set(rbacv1alpha1.ConditionRoleRefsPresent, metav1.ConditionTrue, reasonAllRoleRefsPresent, "Every role in roleRefs exists on the hub.")
	default:
		meta.RemoveStatusCondition(&status.Conditions, rbacv1alpha1.ConditionRoleRefsPresent)
	}

	if result.WaitingForNamespaces {
		set(rbacv1alpha1.ConditionNamespacesSelected, metav1.ConditionUnknown, reasonNamespacesNotReported,
			"The agent of the managed cluster has not reported the namespaces yet.")
		return
	}
	if len(result.Selections) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, rbacv1alpha1.ConditionNamespacesSelected)
		return
	}
	ok, reason := metav1.ConditionTrue, reasonNamespacesMatched
	counts := make([]string, 0, len(result.Selections))
	for _, selection := range result.Selections {
		if selection.Count == 0 {
			ok, reason = metav1.ConditionFalse, reasonNoNamespaceMatches
		}
		counts = append(counts, fmt.Sprintf("%s: %d", selection.Path, selection.Count))
	}
	set(rbacv1alpha1.ConditionNamespacesSelected, ok, reason, "Matching namespaces: "+strings.Join(counts, "; "))
}

// clip truncates a message to the maximum length of a condition.
func clip(message string) string {
	const limit = 32768
	if len(message) > limit {
		return strings.ToValidUTF8(message[:limit-3], "") + "..."
	}
	return message
}

func hasBindings(spec *rbacv1alpha1.ClusterPermissionSpec) bool {
	return spec.ClusterRoleBinding != nil ||
		spec.ClusterRoleBindings != nil && len(*spec.ClusterRoleBindings) > 0 ||
		spec.RoleBindings != nil && len(*spec.RoleBindings) > 0
}

func setApplied(set setter, work *workv1.ManifestWork) {
	if work != nil && work.DeletionTimestamp != nil {
		set(rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse, reasonManifestWorkBeingRemoved,
			"The agent is removing the applied objects.\n"+hint(work))
		return
	}
	if !permissions.Reported(work) {
		message := "There is no ManifestWork."
		if work != nil {
			message = "The agent of the managed cluster has not reported on the ManifestWork yet.\n" + hint(work)
		}
		set(rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse, reasonApplyNotComplete, message)
		return
	}
	applied := *meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	if applied.Status != metav1.ConditionTrue && permissions.IsApplied(work) {
		applied.Status, applied.Reason = metav1.ConditionTrue, workv1.ReasonAppliedManifestWorkComplete
		applied.Message = "All objects are applied. Some read-only objects do not exist."
	}
	set(rbacv1alpha1.ConditionAppliedRBACManifestWork, applied.Status, applied.Reason, applied.Message+"\n"+hint(work))
}

func hint(work *workv1.ManifestWork) string {
	return fmt.Sprintf("Run the following command to check the ManifestWork status:\nkubectl -n %s get manifestwork %s -o yaml", work.Namespace, work.Name)
}

// resourceStatus returns the state of the delivered objects. Another writer may have added objects to the ManifestWork, so
// it lists only those that are rendered, or were before.
func resourceStatus(old *rbacv1alpha1.ResourceStatus, generation int64, seen observation) *rbacv1alpha1.ResourceStatus {
	before := conditionsBefore(old)
	rendered := map[render.ObjectKey]bool{}
	if seen.result.Work != nil {
		for _, d := range permissions.Objects(seen.result.Work) {
			rendered[d.ObjectKey] = true
		}
	}
	out := &rbacv1alpha1.ResourceStatus{}
	for _, d := range permissions.Objects(seen.work) {
		conditions, listed := before[d.ObjectKey]
		if d.ReadOnly || !listed && !rendered[d.ObjectKey] {
			continue
		}
		conditions = slices.Clone(conditions)
		meta.SetStatusCondition(&conditions, appliedCondition(d, generation))
		clusterScoped := rbacv1alpha1.ClusterScopedResourceStatus{Name: d.Name, Conditions: conditions}
		namespaced := rbacv1alpha1.NamespacedResourceStatus{Name: d.Name, Namespace: d.Namespace, Conditions: conditions}
		switch d.Kind {
		case rbac.KindClusterRole:
			out.ClusterRoles = append(out.ClusterRoles, clusterScoped)
		case rbac.KindClusterRoleBinding:
			out.ClusterRoleBindings = append(out.ClusterRoleBindings, clusterScoped)
		case rbac.KindRole:
			out.Roles = append(out.Roles, namespaced)
		case rbac.KindRoleBinding:
			out.RoleBindings = append(out.RoleBindings, namespaced)
		}
	}
	return out
}

// conditionsBefore returns the conditions of each object in a status.
func conditionsBefore(old *rbacv1alpha1.ResourceStatus) map[render.ObjectKey][]metav1.Condition {
	before := map[render.ObjectKey][]metav1.Condition{}
	if old == nil {
		return before
	}
	for kind, objects := range map[string][]rbacv1alpha1.ClusterScopedResourceStatus{
		rbac.KindClusterRole: old.ClusterRoles, rbac.KindClusterRoleBinding: old.ClusterRoleBindings,
	} {
		for _, o := range objects {
			before[render.ObjectKey{Kind: kind, Name: o.Name}] = o.Conditions
		}
	}
	for kind, objects := range map[string][]rbacv1alpha1.NamespacedResourceStatus{rbac.KindRole: old.Roles, rbac.KindRoleBinding: old.RoleBindings} {
		for _, o := range objects {
			before[render.ObjectKey{Kind: kind, Namespace: o.Namespace, Name: o.Name}] = o.Conditions
		}
	}
	return before
}

func appliedCondition(d permissions.Object, generation int64) metav1.Condition {
	out := metav1.Condition{Type: rbacv1alpha1.ConditionResourceApplied, ObservedGeneration: generation}
	applied := meta.FindStatusCondition(d.Conditions, workv1.WorkApplied)
	switch {
	case applied == nil:
		out.Status, out.Reason = metav1.ConditionUnknown, reasonFailedGetManifestApplied
		out.Message = "The agent of the managed cluster has not reported on the object."
	case applied.Status == metav1.ConditionTrue:
		out.Status, out.Reason, out.Message = metav1.ConditionTrue, reasonAppliedManifestComplete, applied.Message
	default:
		out.Status, out.Reason, out.Message = applied.Status, reasonFailedApplyManifest, applied.Message
	}
	return out
}

func removeRolesExist(status *rbacv1alpha1.ClusterPermissionStatus) {
	meta.RemoveStatusCondition(&status.Conditions, conditionValidateRolesExist)
	meta.RemoveStatusCondition(&status.Conditions, conditionValidateClusterRolesExist)
}

// setRolesExist sets, for validate: true, the conditions that report whether the roles of the bindings
// exist on the managed cluster.
func setRolesExist(set setter, status *rbacv1alpha1.ClusterPermissionStatus, spec *rbacv1alpha1.ClusterPermissionSpec, work *workv1.ManifestWork) {
	if spec.Validate == nil || !*spec.Validate {
		removeRolesExist(status)
		return
	}
	missing := map[string][]string{}
	for _, d := range permissions.Objects(work) {
		if d.Kind != rbac.KindRole && d.Kind != rbac.KindClusterRole || meta.IsStatusConditionTrue(d.Conditions, workv1.WorkAvailable) {
			continue
		}
		name := d.Name
		if d.Namespace != "" {
			name = d.Namespace + "/" + d.Name
		}
		missing[d.Kind] = append(missing[d.Kind], name)
	}
	for _, check := range []struct{ kind, condition, found, notFound, what string }{
		{rbac.KindRole, conditionValidateRolesExist, reasonAllRolesFound, reasonRolesNotFound, "roles"},
		{rbac.KindClusterRole, conditionValidateClusterRolesExist, reasonAllClusterRolesFound, reasonClusterRolesNotFound, "cluster roles"},
	} {
		if names := missing[check.kind]; len(names) > 0 {
			set(check.condition, metav1.ConditionFalse, check.notFound,
				fmt.Sprintf("The following %s were not found: %s", check.what, strings.Join(names, ", ")))
		} else {
			set(check.condition, metav1.ConditionTrue, check.found, "All "+check.what+" were found.")
		}
	}
}
