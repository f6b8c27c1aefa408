package worksync

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

// What a ClusterPermission depends on is told in conditions that go with it.
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
				"Every ManagedServiceAccount that a binding names has a ServiceAccount on the managed cluster."},
		},
		"absent accounts": {
			result:        render.Result{AbsentSubjects: []string{"ManagedServiceAccount a does not exist", "ManagedServiceAccount b is being deleted"}},
			conditionType: rbacv1alpha1.ConditionSubjectPresent,
			want: &condition{metav1.ConditionFalse, reasonSubjectsAbsent,
				"Their bindings leave them out: ManagedServiceAccount a does not exist; ManagedServiceAccount b is being deleted"},
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
		"nothing reported": {
			result:        render.Result{WaitingForNamespaces: true},
			conditionType: rbacv1alpha1.ConditionNamespacesSelected,
			want:          &condition{metav1.ConditionUnknown, reasonNamespacesNotReported, "The agent of the managed cluster has not reported its namespaces."},
		},
		"no references": {conditionType: rbacv1alpha1.ConditionRoleRefsPresent},
		"references": {
			change: withRefs, conditionType: rbacv1alpha1.ConditionRoleRefsPresent,
			want: &condition{metav1.ConditionTrue, reasonAllRoleRefsPresent, "The hub has every role that roleRefs name."},
		},
		"missing references": {
			change: withRefs, result: render.Result{MissingRoleRefs: []string{"ClusterRole reader"}},
			conditionType: rbacv1alpha1.ConditionRoleRefsPresent,
			want:          &condition{metav1.ConditionFalse, reasonRoleRefsNotFound, "The hub does not have: ClusterRole reader"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// What was there before goes if it no longer applies.
			cp := permission(test.change)
			for _, conditionType := range []string{rbacv1alpha1.ConditionNamespacesSelected, rbacv1alpha1.ConditionRoleRefsPresent, rbacv1alpha1.ConditionApproved} {
				meta.SetStatusCondition(&cp.Status.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: "Before"})
			}
			status := judge(cp, observation{clusterExists: true, result: &test.result})
			got := meta.FindStatusCondition(status.Conditions, test.conditionType)
			switch {
			case test.want == nil && got != nil:
				t.Errorf("got %+v, want none", got)
			case test.want != nil && (got == nil || *test.want != condition{got.Status, got.Reason, got.Message}):
				t.Errorf("got %+v, want %+v", got, *test.want)
			}
			if meta.FindStatusCondition(status.Conditions, rbacv1alpha1.ConditionApproved) != nil {
				t.Error("Approved is there although nothing was to be approved")
			}
		})
	}
}

// Conditions of the delivery are about what is delivered, that of the approval is
// about what waits.
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
		"waits, and nothing is delivered": {
			approval: &rbacv1alpha1.Approval{Pending: &rbacv1alpha1.PendingGeneration{Generation: 3, RequestedBy: "ann"}},
			status:   metav1.ConditionFalse, message: "Generation 3 by ann waits for approval; nothing is delivered.", delivered: 3, nothing: true,
		},
		"waits, and an earlier one is delivered": {
			approval: &rbacv1alpha1.Approval{
				Pending:   &rbacv1alpha1.PendingGeneration{Generation: 3, RequestedBy: "ann"},
				Delivered: &rbacv1alpha1.DeliveredGeneration{Generation: 2, Spec: before.Spec},
			},
			status: metav1.ConditionFalse, message: "Generation 3 by ann waits for approval; generation 2 stays delivered.", delivered: 2,
		},
		"approved": {
			approval: &rbacv1alpha1.Approval{Approved: &rbacv1alpha1.ApprovedGeneration{Generation: 3, ApprovedBy: "bob"}},
			status:   metav1.ConditionTrue, message: "Approved by bob.", delivered: 3,
		},
		"replaced by one that needs no approval": {
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
			status := judge(cp, seen)
			approved := meta.FindStatusCondition(status.Conditions, rbacv1alpha1.ConditionApproved)
			switch {
			case test.status == "" && approved != nil:
				t.Errorf("got %+v, want none", approved)
			case test.status != "" && (approved == nil || approved.Status != test.status || approved.Message != test.message || approved.ObservedGeneration != 3):
				t.Errorf("got %+v, want %s %q", approved, test.status, test.message)
			}
			applied := meta.FindStatusCondition(status.Conditions, rbacv1alpha1.ConditionAppliedRBACManifestWork)
			if applied == nil || applied.ObservedGeneration != test.delivered || (applied.Status == metav1.ConditionTrue) == test.nothing {
				t.Errorf("got %+v for what is delivered", applied)
			}
			if created := meta.FindStatusCondition(status.Conditions, rbacv1alpha1.ConditionRBACManifestWorkCreated); test.nothing && created.Reason != reasonApprovalPending {
				t.Errorf("got %+v, want the reason %s", created, reasonApprovalPending)
			}
		})
	}
}
