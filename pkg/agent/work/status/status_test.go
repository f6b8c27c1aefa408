package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func TestStatus(t *testing.T) {
	it := &decide.Item{GVK: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, GVR: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "n", Name: "a"}
	first := Manifest(nil, 1, it, Result{Presence: Present})
	work := aggregated(workv1.ManifestWorkStatus{}, 1, []workv1.ManifestCondition{first}, false)
	for _, conditions := range [][]metav1.Condition{first.Conditions, work.Conditions} {
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.NewTime(time.Unix(1000, 0))
		}
	}
	if again := aggregated(work, 1, []workv1.ManifestCondition{Manifest(&first, 1, it, Result{Presence: Present})}, false); !cmp.Equal(work, again) {
		t.Errorf("aggregated() of an unchanged ManifestWork (-want +got):\n%s", cmp.Diff(work, again))
	}

	failed := Manifest(&first, 2, it, Result{Err: errors.New("no"), Presence: Absent})
	second := aggregated(work, 2, []workv1.ManifestCondition{failed}, false)
	for kind, reason := range map[string]string{
		workv1.WorkApplied: workv1.ReasonAppliedManifestWorkFailed, workv1.WorkAvailable: workv1.ReasonResourcesNotAvailable,
	} {
		got := meta.FindStatusCondition(second.Conditions, kind)
		if got == nil || got.Status != metav1.ConditionFalse || got.Reason != reason || got.ObservedGeneration != 2 || got.LastTransitionTime.Unix() == 1000 {
			t.Errorf("condition %s = %+v, want False with reason %s and generation 2", kind, got, reason)
		}
	}
	unread := Manifest(&first, 2, it, Result{PresenceErr: errors.New("unreachable")})
	third := aggregated(work, 2, []workv1.ManifestCondition{unread}, false)
	if got := meta.FindStatusCondition(third.Conditions, workv1.WorkAvailable); got.Status != metav1.ConditionUnknown || got.Reason != workv1.ReasonResourcesStatusUnknown {
		t.Errorf("condition Available = %+v, want Unknown with reason %s", got, workv1.ReasonResourcesStatusUnknown)
	}
	if !meta.IsStatusConditionTrue(third.Conditions, workv1.WorkApplied) {
		t.Error("condition Applied of an applied ManifestWork is not True, want True")
	}

	// A rule can set the condition Available to False, but cannot set it to True for an object that
	// does not exist.
	rule := []metav1.Condition{{Type: workv1.WorkAvailable, Status: metav1.ConditionFalse, Reason: workv1.ReasonConditionRuleEvaluated}}
	ruled := Manifest(nil, 1, it, Result{Presence: Present, Rules: rule})
	if meta.IsStatusConditionTrue(ruled.Conditions, workv1.WorkAvailable) {
		t.Error("condition Available with a rule that is False = True, want False")
	}

	// The status of a complete manifest is kept after its object is deleted.
	complete := Manifest(nil, 1, it, Result{
		Presence: Present, Feedback: []workv1.FeedbackValue{{Name: "x"}},
		Rules: []metav1.Condition{{Type: workv1.WorkComplete, Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated}},
	})
	away := Manifest(&complete, 2, it, Result{Presence: Absent, Frozen: true, Keep: true})
	if !meta.IsStatusConditionTrue(away.Conditions, workv1.WorkComplete) || len(away.StatusFeedbacks.Values) != 1 {
		t.Errorf("Manifest() of a deleted complete object = %+v, want Complete and one value", away)
	}
	if got := meta.FindStatusCondition(away.Conditions, workv1.WorkApplied); got.ObservedGeneration != 1 {
		t.Errorf("condition Applied = %+v, want generation 1", got)
	}
	if got := aggregated(work, 2, []workv1.ManifestCondition{away}, true); !meta.IsStatusConditionTrue(got.Conditions, workv1.WorkComplete) {
		t.Errorf("conditions of a frozen ManifestWork = %+v, want Complete", got.Conditions)
	}
}

// TestFeedbackIsBounded checks the limit of feedback values, because a status that is too large
// cannot be stored.
func TestFeedbackIsBounded(t *testing.T) {
	text := strings.Repeat("a", 1000)
	values := make([]workv1.FeedbackValue, 15)
	for i := range values {
		values[i] = workv1.FeedbackValue{Name: "v", Value: workv1.FieldValue{Type: workv1.String, String: &text}}
	}
	manifests := make([]workv1.ManifestCondition, 100)
	for i := range manifests {
		manifests[i].StatusFeedbacks.Values = values
		manifests[i].Conditions = []metav1.Condition{{Type: workv1.ManifestStatusFeedbackSynced, Status: metav1.ConditionTrue}}
	}
	boundFeedback(manifests)
	total := 0
	for _, manifest := range manifests {
		for i, value := range manifest.StatusFeedbacks.Values {
			total += decide.SizeOf(value.Name, &manifest.StatusFeedbacks.Values[i].Value)
		}
		if synced := meta.IsStatusConditionTrue(manifest.Conditions, workv1.ManifestStatusFeedbackSynced); synced != (len(manifest.StatusFeedbacks.Values) > 0) {
			t.Errorf("StatusFeedbackSynced = %v with %d values, want true only with values", synced, len(manifest.StatusFeedbacks.Values))
		}
	}
	if total == 0 || total > maxFeedback {
		t.Errorf("reported values have %d bytes, want 1 to %d", total, maxFeedback)
	}
}

// TestPathsThatSelectNothing checks that the conditions name paths that select nothing, and stay True.
func TestPathsThatSelectNothing(t *testing.T) {
	it := &decide.Item{Name: "a", Config: decide.Config{FeedbackRules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType}}}}
	got := Manifest(nil, 1, it, Result{Presence: Present, FeedbackErr: &decide.SelectsNothing{}, Note: "ignoreFields have no effect"})
	for conditionType, want := range map[string]string{
		workv1.ManifestStatusFeedbackSynced: "select nothing", workv1.WorkApplied: "The manifest is applied. ignoreFields have no effect",
	} {
		condition := meta.FindStatusCondition(got.Conditions, conditionType)
		if condition == nil || condition.Status != metav1.ConditionTrue || !strings.Contains(condition.Message, want) {
			t.Errorf("condition %s = %+v, want True with %q", conditionType, condition, want)
		}
	}
}
