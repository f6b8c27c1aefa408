package multiclusterroleassignment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
)

const (
	reasonPending = "Pending"
	// reasonForbidden is the reason of a cluster with grants that their author may not make.
	reasonForbidden = "Forbidden"
	// reasonTooMany is the reason of a cluster that exceeds the limits.
	reasonTooMany = "TooManyClusters"

	// shownMessage is the maximum size of the message of a cluster in bytes.
	shownMessage = 1024
	// shownMissing is the maximum number of missing objects in a message.
	shownMissing = 10
)

// health is the state of a ClusterPermission on its cluster.
type health struct {
	ready bool
	// failed is true for an error that does not resolve by waiting for the agent.
	failed          bool
	reason, message string
}

// state is the state of a selected cluster.
type state struct {
	health
	// applied is true if the ClusterPermission has the wanted content.
	applied bool
	// again is the delay of a retry, because no event follows.
	again time.Duration
}

// healthOf returns the health of a ClusterPermission from its conditions.
func healthOf(permission *rbacv1alpha1.ClusterPermission) health {
	if permission.DeletionTimestamp != nil {
		return health{reason: reasonPending, message: "The ClusterPermission is being deleted."}
	}
	if permission.Status.Approval != nil && permission.Status.Approval.Pending != nil {
		return health{reason: reasonPending, message: "The ClusterPermission waits for approval."}
	}
	for _, conditionType := range []string{rbacv1alpha1.ConditionValidation, rbacv1alpha1.ConditionFullyDelivered} {
		if c := current(permission, conditionType); c != nil && c.Status == metav1.ConditionFalse {
			return health{failed: true, reason: c.Reason, message: clip(c.Message)}
		}
	}
	applied := current(permission, rbacv1alpha1.ConditionAppliedRBACManifestWork)
	switch {
	case applied == nil:
		return health{reason: reasonPending, message: "The ClusterPermission is not delivered yet."}
	case applied.Status == metav1.ConditionTrue:
		return health{ready: true}
	}
	return health{reason: reasonPending, message: clip(applied.Message)}
}

// current returns a condition of the current generation, or nil.
func current(permission *rbacv1alpha1.ClusterPermission, conditionType string) *metav1.Condition {
	condition := meta.FindStatusCondition(permission.Status.Conditions, conditionType)
	if condition == nil || condition.ObservedGeneration != permission.Generation {
		return nil
	}
	return condition
}

func clip(message string) string {
	if len(message) > shownMessage {
		return strings.ToValidUTF8(message[:shownMessage], "")
	}
	return message
}

// newStatus returns the status of a plan. states are the states of its clusters.
func newStatus(plan *Plan, states map[string]*state) rbacv1beta1.MulticlusterRoleAssignmentStatus {
	status := *plan.Assignment.Status.DeepCopy()
	status.AppliedClusters, status.Preview = nil, nil
	clusters := &rbacv1beta1.AssignmentClusters{Selected: int32(len(plan.Excess))}
	fail := func(name, reason, message string) {
		if len(clusters.Failing) < rbacv1beta1.MaxFailingClusters {
			clusters.Failing = append(clusters.Failing, rbacv1beta1.ClusterFailure{Name: name, Reason: reason, Message: message})
		}
	}
	failed := map[string]bool{}
	unapplied := len(plan.Excess)
	for _, cluster := range plan.Clusters {
		of := states[cluster.Name]
		if of == nil {
			continue
		}
		clusters.Selected++
		if of.applied {
			status.AppliedClusters = append(status.AppliedClusters, cluster.Name)
		}
		switch {
		case len(cluster.Refused) > 0:
			unapplied++
			fail(cluster.Name, reasonForbidden, clip(cluster.Reason))
		case of.ready:
			clusters.Ready++
		default:
			if !of.applied {
				unapplied++
			}
			failed[cluster.Name] = of.failed
			fail(cluster.Name, of.reason, of.message)
		}
	}
	for _, name := range plan.Excess {
		failed[name] = true
		fail(name, reasonTooMany, fmt.Sprintf("The role assignments select more than %d clusters, or make more than %d grants on them. Use several MulticlusterRoleAssignments.", rbacv1beta1.MaxClusters, rbacv1beta1.MaxGrants))
	}
	slices.SortStableFunc(clusters.Failing, func(a, b rbacv1beta1.ClusterFailure) int { return strings.Compare(a.Name, b.Name) })
	status.Clusters = clusters
	status.RoleAssignments = assignmentStatuses(plan, states, failed)
	setConditions(&status, plan, unapplied)
	return status
}

// assignmentStatuses returns the status of each role assignment. failed contains the clusters with errors.
func assignmentStatuses(plan *Plan, states map[string]*state, failed map[string]bool) []rbacv1beta1.RoleAssignmentStatus {
	before := map[string]metav1.Time{}
	for _, assignment := range plan.Assignment.Status.RoleAssignments {
		before[assignment.Name] = assignment.CreatedAt
	}
	refused := map[string]sets.Set[rbacv1beta1.Grant]{}
	for _, cluster := range plan.Clusters {
		refused[cluster.Name] = sets.New(cluster.Refused...)
	}
	var out []rbacv1beta1.RoleAssignmentStatus
	for i, selection := range plan.Selections {
		status := rbacv1beta1.RoleAssignmentStatus{Name: plan.Assignment.Spec.RoleAssignments[i].Name}
		if created, known := before[status.Name]; known {
			status.CreatedAt = created
		} else {
			status.CreatedAt = metav1.Now().Rfc3339Copy()
		}
		failing, waiting := 0, 0
		for _, name := range selection.Clusters {
			of := states[name]
			switch {
			case failed[name], refused[name].HasAny(selection.grants...):
				failing++
			case of == nil || !of.ready:
				waiting++
			}
		}
		total := len(selection.Clusters)
		switch {
		case selection.Unknown != "":
			status.Status, status.Reason, status.Message = rbacv1beta1.AssignmentPending, rbacv1beta1.ReasonProcessing,
				"The clusters are not known: "+selection.Unknown+". Existing grants stay."
		case failing > 0:
			status.Status, status.Reason, status.Message = rbacv1beta1.AssignmentError, rbacv1beta1.ReasonApplicationFailed,
				fmt.Sprintf("%d of %d clusters have errors; see status.clusters.failing.", failing, total)
		case len(selection.Missing) > 0:
			shown := selection.Missing[:min(len(selection.Missing), shownMissing)]
			status.Status, status.Reason, status.Message = rbacv1beta1.AssignmentError, rbacv1beta1.ReasonInvalidReference, strings.Join(shown, "; ")+"."
		case total == 0:
			status.Status, status.Reason, status.Message = rbacv1beta1.AssignmentPending, rbacv1beta1.ReasonNoMatchingClusters, "No cluster is selected."
		case waiting > 0:
			status.Status, status.Reason, status.Message = rbacv1beta1.AssignmentPending, rbacv1beta1.ReasonProcessing,
				fmt.Sprintf("%d of %d clusters have not applied the grants yet.", waiting, total)
		default:
			status.Status, status.Reason, status.Message = rbacv1beta1.AssignmentActive, rbacv1beta1.ReasonSuccessfullyApplied,
				fmt.Sprintf("All %d clusters have applied the grants.", total)
		}
		out = append(out, status)
	}
	return out
}

// setConditions sets the conditions. unapplied is the number of clusters without the wanted ClusterPermission.
func setConditions(status *rbacv1beta1.MulticlusterRoleAssignmentStatus, plan *Plan, unapplied int) {
	set := func(conditionType string, ok metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: ok, Reason: reason, Message: message, ObservedGeneration: plan.Assignment.Generation,
		})
	}
	selected := status.Clusters.Selected
	unknown := slices.ContainsFunc(plan.Selections, func(s Selection) bool { return s.Unknown != "" })
	switch {
	case unapplied > 0:
		set(rbacv1beta1.ConditionApplied, metav1.ConditionFalse, rbacv1beta1.ReasonApplyFailed,
			fmt.Sprintf("%d of %d clusters do not have all grants; see status.clusters.failing.", unapplied, selected))
	case unknown:
		set(rbacv1beta1.ConditionApplied, metav1.ConditionUnknown, rbacv1beta1.ReasonApplyInProgress, "The clusters of a role assignment are not known yet.")
	default:
		set(rbacv1beta1.ConditionApplied, metav1.ConditionTrue, rbacv1beta1.ReasonApplied, fmt.Sprintf("The ClusterPermissions of all %d clusters are written.", selected))
	}
	var wrong, pending int
	for _, assignment := range status.RoleAssignments {
		switch assignment.Status {
		case rbacv1beta1.AssignmentError:
			wrong++
		case rbacv1beta1.AssignmentPending:
			pending++
		}
	}
	total := len(status.RoleAssignments)
	switch {
	case wrong > 0:
		set(rbacv1beta1.ConditionReady, metav1.ConditionFalse, rbacv1beta1.ReasonAssignmentsFailure, fmt.Sprintf("%d of %d role assignments have errors.", wrong, total))
	case unapplied > 0:
		set(rbacv1beta1.ConditionReady, metav1.ConditionFalse, rbacv1beta1.ReasonProvisioningFailed, "The grants are not written for all clusters.")
	case pending > 0:
		set(rbacv1beta1.ConditionReady, metav1.ConditionFalse, rbacv1beta1.ReasonAssignmentsPending, fmt.Sprintf("%d of %d role assignments are pending.", pending, total))
	default:
		set(rbacv1beta1.ConditionReady, metav1.ConditionTrue, rbacv1beta1.ReasonAssignmentsReady, fmt.Sprintf("%d of %d role assignments are active, on %d clusters.", total, total, selected))
	}
}
