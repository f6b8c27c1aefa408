package clusterpermission

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// TestConditionsOfInputs checks the conditions of the objects on which a ClusterPermission depends.
func TestConditionsOfInputs(t *testing.T) {
	withRefs := func(cp *rbacv1alpha1.ClusterPermission) {
		cp.Spec.RoleRefs = &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: "reader"}}
	}
	type condition struct {
		status          metav1.ConditionStatus
		reason, message string
	}
	for name, test := range map[string]struct {
		change        func(*rbacv1alpha1.ClusterPermission)
		result        render.Result
		conditionType string
		want          *condition
	}{
		"no accounts": {
			conditionType: rbacv1alpha1.ConditionSubjectPresent,
			want: &condition{metav1.ConditionTrue, reasonAllSubjectsPresent,
				"Every ManagedServiceAccount in the bindings has a ServiceAccount on the managed cluster."},
		},
		"absent accounts": {
			result:        render.Result{AbsentSubjects: []string{"ManagedServiceAccount a does not exist", "ManagedServiceAccount b is being deleted"}},
			conditionType: rbacv1alpha1.ConditionSubjectPresent,
			want: &condition{metav1.ConditionFalse, reasonSubjectsAbsent,
				"The bindings omit subjects: ManagedServiceAccount a does not exist; ManagedServiceAccount b is being deleted"},
		},
		"no selectors": {conditionType: rbacv1alpha1.ConditionNamespacesSelected},
		"matches": {
			result:        render.Result{Selections: []render.Selection{{Path: "spec.roles[0].namespaceSelector", Count: 3}}},
			conditionType: rbacv1alpha1.ConditionNamespacesSelected,
			want:          &condition{metav1.ConditionTrue, reasonNamespacesMatched, "Matching namespaces: spec.roles[0].namespaceSelector: 3"},
		},
		"one selector without a match": {
			result:        render.Result{Selections: []render.Selection{{Path: "spec.roles[0].namespaceSelector", Count: 3}, {Path: "spec.roles[1].namespaceSelector"}}},
			conditionType: rbacv1alpha1.ConditionNamespacesSelected,
			want: &condition{metav1.ConditionFalse, reasonNoNamespaceMatches,
				"Matching namespaces: spec.roles[0].namespaceSelector: 3; spec.roles[1].namespaceSelector: 0"},
		},
		"no namespaces reported": {
			result:        render.Result{WaitingForNamespaces: true},
			conditionType: rbacv1alpha1.ConditionNamespacesSelected,
			want:          &condition{metav1.ConditionUnknown, reasonNamespacesNotReported, "The agent of the managed cluster has not reported the namespaces yet."},
		},
		"no references": {conditionType: rbacv1alpha1.ConditionRoleRefsPresent},
		"references": {
			change: withRefs, conditionType: rbacv1alpha1.ConditionRoleRefsPresent,
			want: &condition{metav1.ConditionTrue, reasonAllRoleRefsPresent, "Every role in roleRefs exists on the hub."},
		},
		"missing references": {
			change: withRefs, result: render.Result{MissingRoleRefs: []string{"ClusterRole reader"}},
			conditionType: rbacv1alpha1.ConditionRoleRefsPresent,
			want:          &condition{metav1.ConditionFalse, reasonRoleRefsNotFound, "Not found on the hub: ClusterRole reader"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Earlier conditions must be removed if they no longer apply.
			cp := permission(test.change)
			for _, conditionType := range []string{rbacv1alpha1.ConditionNamespacesSelected, rbacv1alpha1.ConditionRoleRefsPresent, rbacv1alpha1.ConditionApproved} {
				meta.SetStatusCondition(&cp.Status.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: "Before"})
			}
			status := newStatus(cp, observation{clusterExists: true, result: &test.result})
			got := meta.FindStatusCondition(status.Conditions, test.conditionType)
			switch {
			case test.want == nil && got != nil:
				t.Errorf("condition %s = %+v, want none", test.conditionType, got)
			case test.want != nil && (got == nil || *test.want != condition{got.Status, got.Reason, got.Message}):
				t.Errorf("condition %s = %+v, want %+v", test.conditionType, got, *test.want)
			}
			if meta.FindStatusCondition(status.Conditions, rbacv1alpha1.ConditionApproved) != nil {
				t.Error("condition Approved is set, want none: the spec requires no approval")
			}
		})
	}
}

// TestConditionsOfApproval checks that the conditions of the delivery report on the delivered
// generation, and that Approved reports on the pending generation.
func TestConditionsOfApproval(t *testing.T) {
	before := permission(nil)
	for name, test := range map[string]struct {
		approval *rbacv1alpha1.Approval
		status   metav1.ConditionStatus
		message  string
		// delivered is the generation that the other conditions observe.
		delivered int64
		nothing   bool
	}{
		"pending, no generation delivered": {
			approval: &rbacv1alpha1.Approval{Pending: &rbacv1alpha1.PendingGeneration{Generation: 3, RequestedBy: "ann"}},
			status:   metav1.ConditionFalse, message: "Generation 3 by ann waits for approval. Nothing is delivered.", delivered: 3, nothing: true,
		},
		"pending, earlier generation delivered": {
			approval: &rbacv1alpha1.Approval{
				Pending:   &rbacv1alpha1.PendingGeneration{Generation: 3, RequestedBy: "ann"},
				Delivered: &rbacv1alpha1.DeliveredGeneration{Generation: 2, Spec: before.Spec},
			},
			status: metav1.ConditionFalse, message: "Generation 3 by ann waits for approval. Generation 2 stays delivered.", delivered: 2,
		},
		"approved": {
			approval: &rbacv1alpha1.Approval{Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 3, ApprovedBy: "bob"}},
			status:   metav1.ConditionTrue, message: "Approved by bob.", delivered: 3,
		},
		"replaced by a generation that requires no approval": {
			approval:  &rbacv1alpha1.Approval{Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 2, ApprovedBy: "bob"}},
			delivered: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cp := permission(func(cp *rbacv1alpha1.ClusterPermission) { cp.Status.Approval = test.approval })
			seen := observation{clusterExists: true, result: &render.Result{}}
			if !test.nothing {
				seen = observed(t, cp, metav1.ConditionTrue, metav1.ConditionTrue)
			}
			status := newStatus(cp, seen)
			approved := meta.FindStatusCondition(status.Conditions, rbacv1alpha1.ConditionApproved)
			switch {
			case test.status == "" && approved != nil:
				t.Errorf("condition Approved = %+v, want none", approved)
			case test.status != "" && (approved == nil || approved.Status != test.status || approved.Message != test.message || approved.ObservedGeneration != 3):
				t.Errorf("condition Approved = %+v, want %s %q", approved, test.status, test.message)
			}
			applied := meta.FindStatusCondition(status.Conditions, rbacv1alpha1.ConditionAppliedRBACManifestWork)
			if applied == nil || applied.ObservedGeneration != test.delivered || (applied.Status == metav1.ConditionTrue) == test.nothing {
				t.Errorf("condition %s = %+v, want generation %d and status True = %t", rbacv1alpha1.ConditionAppliedRBACManifestWork, applied, test.delivered, !test.nothing)
			}
			if created := meta.FindStatusCondition(status.Conditions, rbacv1alpha1.ConditionRBACManifestWorkCreated); test.nothing && created.Reason != reasonApprovalPending {
				t.Errorf("condition %s = %+v, want reason %s", rbacv1alpha1.ConditionRBACManifestWorkCreated, created, reasonApprovalPending)
			}
		})
	}
}
