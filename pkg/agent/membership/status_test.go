package membership

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// TestNamespaceReport checks that the agent reports a required namespace if its condition on the
// hub is missing or differs.
func TestNamespaceReport(t *testing.T) {
	condition := func(status metav1.ConditionStatus, message string) metav1.Condition {
		reason := clusterv1.ReasonNamespaceApplied
		if status == metav1.ConditionFalse {
			reason = clusterv1.ReasonNamespaceApplyFailed
		}
		return metav1.Condition{Type: clusterv1.ConditionNamespaceAvailable, Status: status, Reason: reason, Message: message}
	}
	now := map[string]metav1.Condition{"shop": condition(metav1.ConditionTrue, "mine"), "bank": condition(metav1.ConditionFalse, "no")}
	known := func(name string) (metav1.Condition, bool) {
		found, ok := now[name]
		return found, ok
	}
	listed := func(name string, conditions ...metav1.Condition) clusterv1.ClusterSetManagedNamespaceConfig {
		return clusterv1.ClusterSetManagedNamespaceConfig{ClusterSet: "prod", Name: name, Conditions: conditions}
	}
	other := metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Other"}
	for name, test := range map[string]struct {
		listed []clusterv1.ClusterSetManagedNamespaceConfig
		want   bool
	}{
		"nothing is listed":              {},
		"not handled yet":                {listed: []clusterv1.ClusterSetManagedNamespaceConfig{listed("post")}},
		"not reported":                   {listed: []clusterv1.ClusterSetManagedNamespaceConfig{listed("shop")}, want: true},
		"one of two is not reported":     {listed: []clusterv1.ClusterSetManagedNamespaceConfig{listed("shop", now["shop"]), listed("bank", other)}, want: true},
		"reported":                       {listed: []clusterv1.ClusterSetManagedNamespaceConfig{listed("shop", other, now["shop"]), listed("bank", now["bank"])}},
		"available with another message": {listed: []clusterv1.ClusterSetManagedNamespaceConfig{listed("shop", condition(metav1.ConditionTrue, "of another agent"))}},
		"failing with another message":   {listed: []clusterv1.ClusterSetManagedNamespaceConfig{listed("bank", condition(metav1.ConditionFalse, "yes"))}, want: true},
		"failing, previously available":  {listed: []clusterv1.ClusterSetManagedNamespaceConfig{listed("bank", condition(metav1.ConditionTrue, "no"))}, want: true},
		"two sets, one not reported":     {listed: []clusterv1.ClusterSetManagedNamespaceConfig{{ClusterSet: "global", Name: "shop"}, listed("shop", now["shop"])}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			report := namespaceReport(test.listed, known)
			if (report != nil) != test.want {
				t.Fatalf("namespaceReport(%v) = %v, want a report = %t", test.listed, report, test.want)
			}
			for i, namespace := range report {
				got := meta.FindStatusCondition(namespace.Conditions, clusterv1.ConditionNamespaceAvailable)
				if got == nil || got.Status != now[namespace.Name].Status || got.Message != now[namespace.Name].Message {
					t.Errorf("condition of %s = %v, want %v", namespace.Name, got, now[namespace.Name])
				}
				if before := test.listed[i]; len(before.Conditions) > 0 && before.Conditions[0].Type == other.Type && meta.FindStatusCondition(namespace.Conditions, other.Type) == nil {
					t.Errorf("conditions of %s do not contain %s, want it kept", namespace.Name, other.Type)
				}
			}
		})
	}
}

// TestStuckWorkersAreReported checks the conditions of several reports while workers get stuck and
// return.
func TestStuckWorkersAreReported(t *testing.T) {
	var status clusterv1.ManagedClusterStatus
	for _, step := range []struct {
		name    string
		stuck   error
		written bool
		want    metav1.ConditionStatus
	}{
		{name: "first report", written: true},
		{name: "all workers return"},
		{name: "a worker becomes stuck", stuck: errors.New("w for 31s"), written: true, want: metav1.ConditionFalse},
		{name: "the worker stays stuck", stuck: errors.New("w for 46s"), want: metav1.ConditionFalse},
		{name: "the worker returns", written: true, want: metav1.ConditionTrue},
		{name: "report after the return", want: metav1.ConditionTrue},
	} {
		before := status
		status = (&observed{
			available: metav1.Condition{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue, Reason: reasonAvailable},
			workers:   workersOf(step.stuck),
		}).on(status)
		written := !equality.Semantic.DeepEqual(before, status)
		if written != step.written {
			t.Errorf("%s: conditions written = %v, want %v", step.name, written, step.written)
		}
		var got metav1.ConditionStatus
		if condition := meta.FindStatusCondition(status.Conditions, conditionWorkers); condition != nil {
			got = condition.Status
		}
		if got != step.want {
			t.Errorf("%s: condition %s = %q, want %q", step.name, conditionWorkers, got, step.want)
		}
		if !meta.IsStatusConditionTrue(status.Conditions, clusterv1.ManagedClusterConditionAvailable) {
			t.Errorf("%s: condition Available is not True, want True", step.name)
		}
	}
}
