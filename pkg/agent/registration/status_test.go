package registration

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// TestStuckWorkersAreReported reports a cluster several times, as its workers are.
func TestStuckWorkersAreReported(t *testing.T) {
	var stuck error
	r := &reporter{membership: &membership{Registrar: &Registrar{config: Config{Stuck: func() error { return stuck }}}}}
	var status clusterv1.ManagedClusterStatus
	for _, step := range []struct {
		name    string
		stuck   error
		written bool
		want    metav1.ConditionStatus
	}{
		{name: "at first", written: true},
		{name: "as long as workers return"},
		{name: "once a worker is stuck", stuck: errors.New("w for 31s"), written: true, want: metav1.ConditionFalse},
		{name: "while it stays stuck", stuck: errors.New("w for 46s"), want: metav1.ConditionFalse},
		{name: "once it has returned", written: true, want: metav1.ConditionTrue},
		{name: "afterwards", want: metav1.ConditionTrue},
	} {
		stuck = step.stuck
		change := difference(&status, &observed{
			available: metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: reasonAvailable},
			workers:   r.workers(),
		})
		conditions, written := change["conditions"].([]metav1.Condition)
		if written {
			status.Conditions = conditions
		}
		if written != step.written {
			t.Errorf("%s, the conditions are written: %v, want %v", step.name, written, step.written)
		}
		var got metav1.ConditionStatus
		if condition := meta.FindStatusCondition(status.Conditions, conditionWorkers); condition != nil {
			got = condition.Status
		}
		if got != step.want {
			t.Errorf("%s, %s is %q, want %q", step.name, conditionWorkers, got, step.want)
		}
		if !meta.IsStatusConditionTrue(status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
			t.Errorf("%s, the cluster is not available", step.name)
		}
	}
}
