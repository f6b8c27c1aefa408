package decide

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

func paths(paths ...string) []workv1.FeedbackRule {
	rule := workv1.FeedbackRule{Type: workv1.JSONPathsType}
	for _, path := range paths {
		rule.JsonPaths = append(rule.JsonPaths, workv1.JsonPath{Name: path, Path: path})
	}
	return []workv1.FeedbackRule{rule}
}

func TestFeedback(t *testing.T) {
	text := func(value string) workv1.FieldValue { return workv1.FieldValue{Type: workv1.String, String: &value} }
	whole := func(value int64) workv1.FieldValue { return workv1.FieldValue{Type: workv1.Integer, Integer: &value} }
	truth := func(value bool) workv1.FieldValue { return workv1.FieldValue{Type: workv1.Boolean, Boolean: &value} }
	raw := func(value string) workv1.FieldValue { return workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &value} }
	wellKnown := []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}
	for name, test := range map[string]struct {
		live  string
		rules []workv1.FeedbackRule
		want  []workv1.FeedbackValue
		fails bool
	}{
		"both spellings": {
			live:  `{apiVersion: v1, kind: X, data: {requests.cpu: "4", requests: {cpu: "5"}}}`,
			rules: paths(`.data.requests\.cpu`, ".data['requests.cpu']"),
			want:  []workv1.FeedbackValue{{Name: `.data.requests\.cpu`, Value: text("4")}, {Name: ".data['requests.cpu']", Value: text("4")}},
		},
		"types": {
			live:  `{apiVersion: v1, kind: X, s: a, i: 3, b: true, f: 1.5, w: 2.0, l: [1, 2], m: {a: b}}`,
			rules: paths(".s", "{.i}", ".b", ".f", ".w", ".l", ".m", ".l[*]"),
			want: []workv1.FeedbackValue{
				{Name: ".s", Value: text("a")}, {Name: "{.i}", Value: whole(3)}, {Name: ".b", Value: truth(true)}, {Name: ".f", Value: text("1.5")},
				{Name: ".w", Value: whole(2)}, {Name: ".l", Value: raw("[1,2]")}, {Name: ".m", Value: raw(`{"a":"b"}`)}, {Name: ".l[*]", Value: raw("[1,2]")},
			},
		},
		"too long": {live: `{apiVersion: v1, kind: X, l: [` + strings.Repeat("1234567,", 200) + `1]}`, rules: paths(".l"), fails: true},
		"bad path": {live: `{apiVersion: v1, kind: X, a: 1}`, rules: paths(".a[", ".a"), want: []workv1.FeedbackValue{{Name: ".a", Value: whole(1)}}, fails: true},
		"one name twice": {
			live: `{apiVersion: v1, kind: X, a: 1, b: 2}`,
			rules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{
				{Name: "x", Path: ".none"}, {Name: "x", Path: ".a"}, {Name: "x", Path: ".b"},
			}}},
			want: []workv1.FeedbackValue{{Name: "x", Value: whole(1)}},
		},
		"other version": {
			live:  `{apiVersion: v1, kind: X, a: 1}`,
			rules: []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "a", Path: ".a", Version: new("v2")}}}},
			fails: true,
		},
		"deployment": {
			live: `{apiVersion: apps/v1, kind: Deployment, status: {readyReplicas: 1, replicas: 2}}`, rules: wellKnown,
			want: []workv1.FeedbackValue{{Name: "ReadyReplicas", Value: whole(1)}, {Name: "Replicas", Value: whole(2)}},
		},
		"daemon set": {
			live: `{apiVersion: apps/v1, kind: DaemonSet, status: {numberReady: 1, desiredNumberScheduled: 2, numberAvailable: 0}}`, rules: wellKnown,
			want: []workv1.FeedbackValue{{Name: "NumberReady", Value: whole(1)}, {Name: "DesiredNumberScheduled", Value: whole(2)}, {Name: "NumberAvailable", Value: whole(0)}},
		},
		"job": {
			live: `{apiVersion: batch/v1, kind: Job, status: {succeeded: 1, conditions: [{type: Complete, status: "True"}]}}`, rules: wellKnown,
			want: []workv1.FeedbackValue{{Name: "JobComplete", Value: text("True")}, {Name: "JobSucceeded", Value: whole(1)}},
		},
		"pod": {
			live: `{apiVersion: v1, kind: Pod, status: {phase: Running, conditions: [{type: Ready, status: "False"}]}}`, rules: wellKnown,
			want: []workv1.FeedbackValue{{Name: "PodReady", Value: text("False")}, {Name: "PodPhase", Value: text("Running")}},
		},
		"not well known": {live: `{apiVersion: v1, kind: ConfigMap}`, rules: wellKnown, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Feedback(bounded.NewBudget(), object(t, test.live), test.rules, FeedbackPaths{})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Feedback() (-want +got):\n%s", diff)
			}
			if (err != nil) != test.fails {
				t.Errorf("Feedback() error = %v, want an error = %t", err, test.fails)
			}
		})
	}
}

// TestFeedbackSelectsNothing checks that the paths of users that select nothing are named, and that this is no other error.
func TestFeedbackSelectsNothing(t *testing.T) {
	live := object(t, `{apiVersion: v1, kind: Pod, data: {a.b: "1"}}`)
	rules := []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}, {Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{
		{Name: "cpu", Path: ".data['a.b']"}, {Name: "other", Path: ".data.a.b"}, {Name: "cpu", Path: ".data.none"},
	}}}
	values, err := Feedback(bounded.NewBudget(), live, rules, FeedbackPaths{})
	if _, nothing := err.(*SelectsNothing); !nothing || err.Error() != "These paths select nothing: .data.a.b (other)" || len(values) != 1 {
		t.Errorf("Feedback() = %v, %v, want the path of other to select nothing", values, err)
	}
	rules = append(rules, workv1.FeedbackRule{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "bad", Path: ".a["}}})
	if _, err := Feedback(bounded.NewBudget(), live, rules, FeedbackPaths{}); err == nil || !strings.Contains(err.Error(), "bad: ") || !strings.Contains(err.Error(), "other") {
		t.Errorf("Feedback() with a bad path = %v, want both problems", err)
	} else if _, nothing := err.(*SelectsNothing); nothing {
		t.Error("Feedback() with a bad path = *SelectsNothing, want another error")
	}
}

// TestFeedbackIsBounded checks the limit of values: a status that is too large would not be stored,
// so no values would be reported.
func TestFeedbackIsBounded(t *testing.T) {
	live := object(t, `{apiVersion: v1, kind: X}`)
	var jsonPaths []workv1.JsonPath
	for i := range 100 {
		name := fmt.Sprintf("v%02d", i)
		live.Object[name] = strings.Repeat("a", 1000)
		jsonPaths = append(jsonPaths, workv1.JsonPath{Name: name, Path: "." + name})
	}
	live.Object["long"] = strings.Repeat("a", maxText+1)
	rules := []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: jsonPaths}}
	values, err := Feedback(bounded.NewBudget(), live, rules, FeedbackPaths{})
	if len(values) == 0 || len(values) > maxFeedback/1000 || err == nil {
		t.Errorf("Feedback() = %d values, %v, want 1 to %d values and an error", len(values), err, maxFeedback/1000)
	}
	long := []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "long", Path: ".long"}}}}
	if values, err := Feedback(bounded.NewBudget(), live, long, FeedbackPaths{}); len(values) != 0 || err == nil {
		t.Errorf("Feedback() of a long text = %d values, %v, want none and an error", len(values), err)
	}
}

// TestLargeValuesAreNotEncoded uses a value that takes longer to traverse than the timeout of the
// test.
func TestLargeValuesAreNotEncoded(t *testing.T) {
	var value any = "a"
	for range 8 {
		list := make([]any, 100)
		for i := range list {
			list[i] = value
		}
		value = list
	}
	if got, err := fieldValue(value); got != nil || err == nil {
		t.Errorf("fieldValue() = %v, %v, want nil and an error", got, err)
	}
}
