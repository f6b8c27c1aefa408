package manifestwork

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func TestExpiry(t *testing.T) {
	finished := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	work := &workv1.ManifestWork{
		Spec: workv1.ManifestWorkSpec{DeleteOption: &workv1.DeleteOption{TTLSecondsAfterFinished: ptr.To[int64](60)}},
		Status: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{{
			Type: workv1.WorkComplete, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(finished),
		}}},
	}
	if due, ok := expiry(work); !ok || !due.Equal(finished.Add(time.Minute)) {
		t.Errorf("expiry() = %s, %t, want %s", due, ok, finished.Add(time.Minute))
	}
	work.Labels = map[string]string{workv1.ManifestWorkReplicaSetLabel: "ns.set"}
	if _, ok := expiry(work); ok {
		t.Error("expiry() of a ManifestWork of a ManifestWorkReplicaSet = true, want false")
	}
	work.Labels = nil
	work.Status.Conditions[0].Status = metav1.ConditionFalse
	if _, ok := expiry(work); ok {
		t.Error("expiry() of an unfinished ManifestWork = true, want false")
	}
	work.Status.Conditions[0].Status = metav1.ConditionTrue
	work.Spec.DeleteOption.TTLSecondsAfterFinished = nil
	if _, ok := expiry(work); ok {
		t.Error("expiry() without a TTL = true, want false")
	}
}
