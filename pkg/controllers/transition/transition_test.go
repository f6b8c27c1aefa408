package transition

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func condition(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: "Applied", Status: status, Reason: reason, Message: message}}
}

func TestCompare(t *testing.T) {
	rules := []Rule{{Condition: "Applied", Action: "Apply", Omitted: func(c metav1.Condition) bool { return c.Reason == "Waiting" }}}
	applied, failed := condition(metav1.ConditionTrue, "Complete", "all"), condition(metav1.ConditionFalse, "Failed", "one")
	success := []Event{{Type: corev1.EventTypeNormal, Reason: "Complete", Action: "Apply", Note: "all"}}
	for name, test := range map[string]struct {
		before, after []metav1.Condition
		want          []Event
	}{
		"first condition":        {nil, applied, success},
		"same condition":         {applied, applied, nil},
		"other status":           {applied, failed, []Event{{Type: corev1.EventTypeWarning, Reason: "Failed", Action: "Apply", Note: "one"}}},
		"other reason":           {condition(metav1.ConditionTrue, "Adopted", ""), applied, success},
		"other message":          {condition(metav1.ConditionTrue, "Complete", "some"), applied, nil},
		"intermediate state":     {applied, condition(metav1.ConditionFalse, "Waiting", ""), nil},
		"condition of no rule":   {nil, []metav1.Condition{{Type: "Available", Status: metav1.ConditionTrue}}, nil},
		"condition that is gone": {applied, nil, nil},
		"no message":             {nil, condition(metav1.ConditionUnknown, "Lost", ""), []Event{{Type: corev1.EventTypeWarning, Reason: "Lost", Action: "Apply", Note: "The condition Applied is Unknown."}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := compare(rules, test.before, test.after); !reflect.DeepEqual(got, test.want) {
				t.Errorf("compare(%v, %v) = %v, want %v", test.before, test.after, got, test.want)
			}
		})
	}
}

// TestEventsOfANamespaceAreBounded checks that a cluster that changes its conditions all the time neither floods
// the hub with Events nor suppresses the Events of other clusters.
func TestEventsOfANamespaceAreBounded(t *testing.T) {
	recorded := events.NewFakeRecorder(10 * eventsBurst)
	r := NewRecorder(recorded)
	kind := Kind{
		Conditions: func(obj runtime.Object) []metav1.Condition { return obj.(*workv1.ManifestWork).Status.Conditions },
		Rules:      []Rule{{Condition: "Applied", Action: "Apply"}},
	}
	work := func(namespace string, i int) *workv1.ManifestWork {
		out := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "work"}}
		meta.SetStatusCondition(&out.Status.Conditions, metav1.Condition{Type: "Applied", Status: metav1.ConditionFalse, Reason: fmt.Sprint("Reason", i), Message: strings.Repeat("é", maxNoteBytes)})
		return out
	}
	for i := range 5 * eventsBurst {
		r.record(kind, work("hostile", i), work("hostile", i+1))
	}
	// The limit grows while the test runs, so that a slow machine records some more.
	if got := len(recorded.Events); got < eventsBurst || got > 2*eventsBurst {
		t.Errorf("Events of a namespace that changes %d times = %d, want about %d", 5*eventsBurst, got, eventsBurst)
	}
	before := len(recorded.Events)
	r.record(kind, work("other", 0), work("other", 1))
	if got := len(recorded.Events) - before; got != 1 {
		t.Errorf("Events of another namespace = %d, want 1", got)
	}
}

func TestClip(t *testing.T) {
	if got := clip("cause\nhint"); got != "cause" {
		t.Errorf("clip of two lines = %q, want the first", got)
	}
	for _, note := range []string{"", "short", strings.Repeat("é", maxNoteBytes) + ": denied"} {
		got := clip(note)
		head, tail, _ := strings.Cut(got, "...")
		if len(got) > maxNoteBytes || len(note) <= maxNoteBytes && got != note || !strings.HasPrefix(note, head) || !strings.HasSuffix(note, tail) {
			t.Errorf("clip(%d bytes) = %d bytes %q, want the start and the end in at most %d bytes", len(note), len(got), got, maxNoteBytes)
		}
	}
}
