package apiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/transition"
)

// recordEvents writes Events to the hub until ctx ends. The broadcaster itself lives as long as the process.
func (s *Server) recordEvents(ctx context.Context) {
	if err := s.events.StartRecordingToSinkWithContext(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to start recording Events; they are lost")
	}
}

// transitions returns the kinds that have Events when their conditions change. assigns is true if the server serves
// MulticlusterRoleAssignments. For objects that the hub stores in
// CustomResourceDefinitions, the controllers of the hub record Events.
func transitions(clients *clients, informers informerFactories, assigns bool) []transition.Kind {
	kinds := []transition.Kind{{
		Informer: informers.own.Rbac().V1alpha1().ClusterPermissions().Informer(),
		Conditions: func(obj runtime.Object) []metav1.Condition {
			return obj.(*rbacv1alpha1.ClusterPermission).Status.Conditions
		},
		Rules: []transition.Rule{
			{Condition: rbacv1alpha1.ConditionRBACManifestWorkCreated, Action: "Render", Omitted: clusterpermission.IsIntermediate},
			{Condition: rbacv1alpha1.ConditionFullyDelivered, Action: "Render", Omitted: func(c metav1.Condition) bool {
				return c.Status == metav1.ConditionTrue || clusterpermission.IsIntermediate(c)
			}},
			{Condition: rbacv1alpha1.ConditionAppliedRBACManifestWork, Action: "Apply", Omitted: clusterpermission.IsIntermediate},
			{Condition: rbacv1alpha1.ConditionApproved, Action: "Approve"},
		},
	}}
	if assigns {
		kinds = append(kinds, transition.Kind{
			Informer: informers.own.Rbac().V1beta1().MulticlusterRoleAssignments().Informer(),
			Conditions: func(obj runtime.Object) []metav1.Condition {
				return obj.(*rbacv1beta1.MulticlusterRoleAssignment).Status.Conditions
			},
			Rules: []transition.Rule{{Condition: rbacv1beta1.ConditionReady, Action: "Assign", Omitted: func(c metav1.Condition) bool {
				return c.Reason == rbacv1beta1.ReasonAssignmentsPending
			}}},
		})
	}
	if clients.works == clients.own {
		kinds = append(kinds, transition.Kind{
			Informer:   informers.works.Work().V1().ManifestWorks().Informer(),
			Conditions: func(obj runtime.Object) []metav1.Condition { return obj.(*workv1.ManifestWork).Status.Conditions },
			Rules: []transition.Rule{{Condition: workv1.WorkApplied, Action: "Apply", Omitted: func(c metav1.Condition) bool {
				return c.Reason == workv1.ReasonWaitingForManagedCluster
			}}},
		})
	}
	if clients.clusters == clients.own {
		kinds = append(kinds, transition.Kind{
			Informer:   informers.clusters.Cluster().V1().ManagedClusters().Informer(),
			Conditions: func(obj runtime.Object) []metav1.Condition { return obj.(*clusterv1.ManagedCluster).Status.Conditions },
			Rules: []transition.Rule{
				{Condition: clusterv1.ManagedClusterConditionHubAccepted, Action: "Accept"},
				{Condition: clusterv1.ManagedClusterConditionJoined, Action: "Join"},
				{Condition: clusterv1.ManagedClusterConditionAvailable, Action: "RenewLease"},
				{Condition: clusterv1.ManagedClusterConditionClockSynced, Action: "CompareClocks"},
			},
		})
	}
	if clients.accounts == clients.own {
		kinds = append(kinds, transition.Kind{
			Informer: informers.accounts.Authentication().V1beta1().ManagedServiceAccounts().Informer(),
			Conditions: func(obj runtime.Object) []metav1.Condition {
				return obj.(*authenticationv1beta1.ManagedServiceAccount).Status.Conditions
			},
			Rules: []transition.Rule{
				{Condition: authenticationv1beta1.ConditionTokenReported, Action: "ReportToken", Omitted: isPending},
				{Condition: authenticationv1beta1.ConditionAllServiceAccountPresent, Action: "Replicate", Omitted: isPending},
			},
			Changed: func(old, obj runtime.Object) []transition.Event {
				return rotated(old.(*authenticationv1beta1.ManagedServiceAccount), obj.(*authenticationv1beta1.ManagedServiceAccount))
			},
		})
	}
	return kinds
}

func isPending(condition metav1.Condition) bool {
	return condition.Reason == authenticationv1beta1.ReasonPending
}

// rotated returns the Event of a replaced token.
func rotated(old, account *authenticationv1beta1.ManagedServiceAccount) []transition.Event {
	before, after := old.Status.TokenSecretRef, account.Status.TokenSecretRef
	if before == nil || after == nil || before.LastRefreshTimestamp.Equal(&after.LastRefreshTimestamp) {
		return nil
	}
	note := fmt.Sprintf("Secret %s contains a new token.", after.Name)
	if expires := account.Status.ExpirationTimestamp; expires != nil {
		note = fmt.Sprintf("Secret %s contains a new token, which expires at %s.", after.Name, expires.UTC().Format(time.RFC3339))
	}
	return []transition.Event{{Type: corev1.EventTypeNormal, Reason: "TokenRotated", Action: "RotateToken", Note: note}}
}
