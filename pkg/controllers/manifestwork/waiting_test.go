package manifestwork

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// TestWithWaiting checks when the hub sets and removes the condition of a ManifestWork whose cluster has not joined.
func TestWithWaiting(t *testing.T) {
	now := metav1.Now()
	reported := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestWorkComplete}
	waiting := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: workv1.ReasonWaitingForManagedCluster}
	for name, test := range map[string]struct {
		has     []metav1.Condition
		deleted bool
		joined  bool
		changes bool
		want    string
	}{
		"no cluster":                    {changes: true, want: workv1.ReasonWaitingForManagedCluster},
		"no cluster, reported already":  {has: []metav1.Condition{waiting}},
		"no cluster, applied earlier":   {has: []metav1.Condition{reported}},
		"no cluster, deleted":           {deleted: true},
		"cluster joined":                {joined: true},
		"cluster joined after the work": {joined: true, has: []metav1.Condition{waiting}, changes: true},
		"cluster joined and applied":    {joined: true, has: []metav1.Condition{reported}},
	} {
		t.Run(name, func(t *testing.T) {
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w"}, Status: workv1.ManifestWorkStatus{Conditions: test.has}}
			if test.deleted {
				work.DeletionTimestamp = &now
			}
			got := withWaiting(work, test.joined)
			if (got != nil) != test.changes {
				t.Fatalf("withWaiting() = %v, want a change: %t", got, test.changes)
			}
			if got == nil {
				return
			}
			reason := ""
			if applied := meta.FindStatusCondition(got.Status.Conditions, workv1.WorkApplied); applied != nil {
				reason = applied.Reason
			}
			if reason != test.want {
				t.Errorf("reason of Applied = %q, want %q", reason, test.want)
			}
		})
	}
}
