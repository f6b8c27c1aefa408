package liveness

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

func TestStateOf(t *testing.T) {
	joined := metav1.Condition{Type: clusterv1.ManagedClusterConditionJoined, Status: metav1.ConditionTrue}
	condition := func(status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: status}
	}
	for _, test := range []struct {
		accepted   bool
		conditions []metav1.Condition
		want       string
	}{
		{false, []metav1.Condition{joined, condition(metav1.ConditionTrue)}, "unaccepted"},
		{true, nil, "joining"},
		{true, []metav1.Condition{condition(metav1.ConditionTrue)}, "joining"},
		{true, []metav1.Condition{joined}, "joining"},
		{true, []metav1.Condition{joined, condition(metav1.ConditionTrue)}, "available"},
		{true, []metav1.Condition{joined, condition(metav1.ConditionFalse)}, "unavailable"},
		{true, []metav1.Condition{joined, condition(metav1.ConditionUnknown)}, "unreachable"},
	} {
		cluster := &clusterv1.ManagedCluster{}
		cluster.Spec.HubAcceptsClient, cluster.Status.Conditions = test.accepted, test.conditions
		if got := stateOf(cluster); got != test.want {
			t.Errorf("stateOf(accepted %t, %v) = %q, want %q", test.accepted, test.conditions, got, test.want)
		}
	}
}
