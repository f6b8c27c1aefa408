package work

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"types": {
			live:  `{apiVersion: v1, kind: X, s: a, i: 3, b: true, f: 1.5, w: 2.0, l: [1, 2], m: {a: b}}`,
			rules: paths(".s", "{.i}", ".b", ".f", ".w", ".l", ".m", ".l[*]", ".none"),
			want: []workv1.FeedbackValue{
				{Name: ".s", Value: text("a")}, {Name: "{.i}", Value: whole(3)}, {Name: ".b", Value: truth(true)}, {Name: ".f", Value: text("1.5")},
				{Name: ".w", Value: whole(2)}, {Name: ".l", Value: raw("[1,2]")}, {Name: ".m", Value: raw(`{"a":"b"}`)}, {Name: ".l[*]", Value: raw("[1,2]")},
			},
		},
		"too long": {live: `{apiVersion: v1, kind: X, l: [` + strings.Repeat("1234567,", 200) + `1]}`, rules: paths(".l"), fails: true},
		"bad path": {live: `{apiVersion: v1, kind: X, a: 1}`, rules: paths(".a[", ".a"), want: []workv1.FeedbackValue{{Name: ".a", Value: whole(1)}}, fails: true},
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
			got, err := feedback(bounded.NewBudget(), object(t, test.live), test.rules, FeedbackPaths{})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != test.fails {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestConditionRules(t *testing.T) {
	evaluator := newEvaluator(FeedbackPaths{})
	cel := func(expressions ...string) workv1.ConditionRule {
		return workv1.ConditionRule{Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: expressions}
	}
	wellKnown := workv1.ConditionRule{Type: workv1.WellKnownConditionsType}
	message := cel("object.a == 1")
	message.Message, message.MessageExpression = new("plain"), new(`result ? "yes" : ""`)
	for name, test := range map[string]struct {
		live    string
		rule    workv1.ConditionRule
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"true":                {`{apiVersion: v1, kind: X, a: 1}`, cel("object.a == 1", "true"), metav1.ConditionTrue, workv1.ReasonConditionRuleEvaluated, "Manifest is C"},
		"false":               {`{apiVersion: v1, kind: X, a: 1}`, cel("true", "object.a == 2"), metav1.ConditionFalse, workv1.ReasonConditionRuleEvaluated, "Manifest is not C"},
		"message expression":  {`{apiVersion: v1, kind: X, a: 1}`, message, metav1.ConditionTrue, workv1.ReasonConditionRuleEvaluated, "yes"},
		"message":             {`{apiVersion: v1, kind: X, a: 2}`, message, metav1.ConditionFalse, workv1.ReasonConditionRuleEvaluated, "plain"},
		"no such key":         {`{apiVersion: v1, kind: X}`, cel("object.a == 1"), metav1.ConditionFalse, workv1.ReasonConditionRuleExpressionError, "no such key: a"},
		"syntax":              {`{apiVersion: v1, kind: X}`, cel("object."), metav1.ConditionFalse, workv1.ReasonConditionRuleExpressionError, "*"},
		"not a bool":          {`{apiVersion: v1, kind: X}`, cel("1"), metav1.ConditionFalse, workv1.ReasonConditionRuleExpressionError, "*"},
		"costs too much":      {`{apiVersion: v1, kind: X, l: [1,2,3,4,5,6,7,8,9,10]}`, cel(`object.l.all(a, object.l.all(b, object.l.all(c, object.l.all(d, object.l.all(e, object.l.all(f, a+b+c+d+e+f > 0))))))`), metav1.ConditionFalse, workv1.ReasonConditionRuleExpressionError, "*"},
		"no expressions":      {`{apiVersion: v1, kind: X}`, cel(), metav1.ConditionUnknown, workv1.ReasonConditionRuleInvalid, "*"},
		"unknown type":        {`{apiVersion: v1, kind: X}`, workv1.ConditionRule{Condition: "C", Type: "Other"}, metav1.ConditionUnknown, workv1.ReasonConditionRuleInvalid, "*"},
		"job not started":     {`{apiVersion: batch/v1, kind: Job}`, wellKnown, metav1.ConditionFalse, workv1.ReasonConditionRuleEvaluated, "Job is not finished"},
		"job failed":          {`{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Failed, status: "True"}]}}`, wellKnown, metav1.ConditionTrue, workv1.ReasonConditionRuleEvaluated, "Job is finished"},
		"pod succeeded":       {`{apiVersion: v1, kind: Pod, status: {phase: Succeeded}}`, wellKnown, metav1.ConditionTrue, workv1.ReasonConditionRuleEvaluated, "Pod is in phase Succeeded"},
		"pod runs":            {`{apiVersion: v1, kind: Pod, status: {phase: Running}}`, wellKnown, metav1.ConditionFalse, workv1.ReasonConditionRuleEvaluated, "Pod is not finished"},
		"no well-known rules": {`{apiVersion: v1, kind: X}`, wellKnown, metav1.ConditionUnknown, workv1.ReasonConditionRuleInvalid, "*"},
	} {
		t.Run(name, func(t *testing.T) {
			got := evaluator.rules(t.Context(), bounded.NewBudget(), object(t, test.live), []workv1.ConditionRule{test.rule})
			if len(got) != 1 {
				t.Fatalf("got %v", got)
			}
			if got[0].Status != test.status || got[0].Reason != test.reason || test.message != "*" && got[0].Message != test.message {
				t.Errorf("got %+v", got[0])
			}
		})
	}
	reserved := cel("true")
	reserved.Condition = workv1.WorkApplied
	if got := evaluator.rules(t.Context(), bounded.NewBudget(), object(t, `{apiVersion: v1, kind: X}`), []workv1.ConditionRule{reserved}); len(got) != 0 {
		t.Errorf("a rule made %v", got)
	}
}

func TestIgnoreFields(t *testing.T) {
	const desired = `{apiVersion: v1, kind: X, metadata: {annotations: {a.b/c: "1"}}, spec: {replicas: 3, l: [{name: a, image: x}, {name: b, image: x}], nums: [1, 2, 3]}}`
	for name, test := range map[string]struct {
		field workv1.IgnoreField
		live  string
		want  string
		fails bool
	}{
		"changed": {
			field: workv1.IgnoreField{JSONPaths: []string{".spec.replicas"}},
			live:  `{apiVersion: v1, kind: X, spec: {replicas: 5}}`,
			want:  `{apiVersion: v1, kind: X, metadata: {annotations: {a.b/c: "1"}}, spec: {l: [{name: a, image: x}, {name: b, image: x}], nums: [1, 2, 3]}}`,
		},
		"unchanged": {
			field: workv1.IgnoreField{JSONPaths: []string{"{$.spec.replicas}"}},
			live:  `{apiVersion: v1, kind: X, spec: {replicas: 3}}`,
			want:  desired,
		},
		"pointer": {
			field: workv1.IgnoreField{JSONPointers: []string{"/metadata/annotations/a.b~1c", "/nothing/there"}},
			live:  `{apiVersion: v1, kind: X}`,
			want:  `{apiVersion: v1, kind: X, metadata: {annotations: {}}, spec: {replicas: 3, l: [{name: a, image: x}, {name: b, image: x}], nums: [1, 2, 3]}}`,
		},
		"items by name": {
			field: workv1.IgnoreField{JQPathExpressions: []string{".spec.l[].image"}},
			live:  `{apiVersion: v1, kind: X, spec: {l: [{name: b, image: x}, {name: a, image: y}]}}`,
			want:  `{apiVersion: v1, kind: X, metadata: {annotations: {a.b/c: "1"}}, spec: {replicas: 3, l: [{name: a}, {name: b, image: x}], nums: [1, 2, 3]}}`,
		},
		"filter": {
			field: workv1.IgnoreField{JSONPaths: []string{`.spec.l[?(@.name=="b")].image`, `.spec['replicas']`}},
			live:  `{apiVersion: v1, kind: X}`,
			want:  `{apiVersion: v1, kind: X, metadata: {annotations: {a.b/c: "1"}}, spec: {l: [{name: a, image: x}, {name: b}], nums: [1, 2, 3]}}`,
		},
		"items": {
			field: workv1.IgnoreField{JSONPaths: []string{".spec.nums[0]", ".spec.nums[2]"}},
			live:  `{apiVersion: v1, kind: X}`,
			want:  `{apiVersion: v1, kind: X, metadata: {annotations: {a.b/c: "1"}}, spec: {replicas: 3, l: [{name: a, image: x}, {name: b, image: x}], nums: [2]}}`,
		},
		"overlapping": {
			field: workv1.IgnoreField{JSONPaths: []string{".spec.l", ".spec.l[*].image", ".spec.*"}},
			live:  `{apiVersion: v1, kind: X}`,
			want:  `{apiVersion: v1, kind: X, metadata: {annotations: {a.b/c: "1"}}, spec: {}}`,
		},
		"endless":      {field: workv1.IgnoreField{JQPathExpressions: []string{"last(repeat(.))"}}, fails: true},
		"bad jq":       {field: workv1.IgnoreField{JQPathExpressions: []string{".spec["}}, fails: true},
		"no path":      {field: workv1.IgnoreField{JQPathExpressions: []string{"1 + 1"}}, fails: true},
		"no injection": {field: workv1.IgnoreField{JSONPaths: []string{`.spec["\(env)"]`}}, live: `{apiVersion: v1, kind: X}`, want: desired},
		"bad pointer":  {field: workv1.IgnoreField{JSONPointers: []string{"spec"}}, fails: true},
		"bad path":     {field: workv1.IgnoreField{JSONPaths: []string{"..replicas"}}, fails: true},
		"everything":   {field: workv1.IgnoreField{JQPathExpressions: []string{"."}}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := object(t, desired)
			live := object(t, `{apiVersion: v1, kind: X}`)
			if test.live != "" {
				live = object(t, test.live)
			}
			err := leaveToOthers(t.Context(), bounded.NewBudget(), got, live, test.field)
			if (err != nil) != test.fails {
				t.Fatalf("error is %v", err)
			}
			if err == nil {
				if diff := cmp.Diff(object(t, test.want).Object, got.Object); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestStatus(t *testing.T) {
	it := plan(t.Context(), testMapper, workOf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}`))[0]
	first := manifestStatus(nil, 1, it, result{presence: present})
	work := workStatus(workv1.ManifestWorkStatus{}, 1, []workv1.ManifestCondition{first}, false)
	for _, conditions := range [][]metav1.Condition{first.Conditions, work.Conditions} {
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.NewTime(time.Unix(1000, 0))
		}
	}
	if again := workStatus(work, 1, []workv1.ManifestCondition{manifestStatus(&first, 1, it, result{presence: present})}, false); !cmp.Equal(work, again) {
		t.Errorf("an unchanged work has another status: %s", cmp.Diff(work, again))
	}

	failed := manifestStatus(&first, 2, it, result{err: errors.New("no"), presence: absent})
	second := workStatus(work, 2, []workv1.ManifestCondition{failed}, false)
	for kind, reason := range map[string]string{
		workv1.WorkApplied: workv1.ReasonAppliedManifestWorkFailed, workv1.WorkAvailable: workv1.ReasonResourcesNotAvailable,
	} {
		got := meta.FindStatusCondition(second.Conditions, kind)
		if got == nil || got.Status != metav1.ConditionFalse || got.Reason != reason || got.ObservedGeneration != 2 || got.LastTransitionTime.Unix() == 1000 {
			t.Errorf("%s is %+v", kind, got)
		}
	}
	unread := manifestStatus(&first, 2, it, result{presenceErr: errors.New("unreachable")})
	third := workStatus(work, 2, []workv1.ManifestCondition{unread}, false)
	if got := meta.FindStatusCondition(third.Conditions, workv1.WorkAvailable); got.Status != metav1.ConditionUnknown || got.Reason != workv1.ReasonResourcesStatusUnknown {
		t.Errorf("Available is %+v", got)
	}
	if !meta.IsStatusConditionTrue(third.Conditions, workv1.WorkApplied) {
		t.Error("an applied work is reported as not applied")
	}

	// A rule may deny that an object is available, not claim it.
	rule := []metav1.Condition{{Type: workv1.WorkAvailable, Status: metav1.ConditionFalse, Reason: workv1.ReasonConditionRuleEvaluated}}
	ruled := manifestStatus(nil, 1, it, result{presence: present, rules: rule})
	if meta.IsStatusConditionTrue(ruled.Conditions, workv1.WorkAvailable) {
		t.Error("the rule is not heard")
	}

	// What a complete manifest reported stays when its object is cleaned away.
	complete := manifestStatus(nil, 1, it, result{
		presence: present, feedback: []workv1.FeedbackValue{{Name: "x"}},
		rules: []metav1.Condition{{Type: workv1.WorkComplete, Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated}},
	})
	away := manifestStatus(&complete, 2, it, result{presence: absent, frozen: true, keep: true})
	if !meta.IsStatusConditionTrue(away.Conditions, workv1.WorkComplete) || len(away.StatusFeedbacks.Values) != 1 {
		t.Errorf("got %+v", away)
	}
	if got := meta.FindStatusCondition(away.Conditions, workv1.WorkApplied); got.ObservedGeneration != 1 {
		t.Errorf("Applied is %+v", got)
	}
	if got := workStatus(work, 2, []workv1.ManifestCondition{away}, true); !meta.IsStatusConditionTrue(got.Conditions, workv1.WorkComplete) {
		t.Errorf("got %+v", got.Conditions)
	}
}

func TestHoldBack(t *testing.T) {
	now := time.Unix(1000, 0)
	state := &itemState{}
	for range 100 {
		if err := state.holdBack(now); err != nil {
			t.Fatal("a first apply is held back")
		}
	}
	state.applied = true
	writes := 0
	for range 10 * 60 * 20 {
		if state.holdBack(now) == nil {
			writes++
		}
		now = now.Add(50 * time.Millisecond)
	}
	if writes < freeRepairs || writes > freeRepairs+15 {
		t.Errorf("%d writes in ten minutes of dispute", writes)
	}
	now = now.Add(2*maxRepairDelay + repairMemory + time.Second)
	for i := range freeRepairs {
		if err := state.holdBack(now); err != nil {
			t.Errorf("repair %d after a long peace: %v", i, err)
		}
	}
}

// TestFeedbackIsBounded: a status that is too large would not be stored, and nothing be reported.
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
	values, err := feedback(bounded.NewBudget(), live, rules, FeedbackPaths{})
	if len(values) == 0 || len(values) > maxFeedback/1000 || err == nil {
		t.Errorf("feedback() = %d values, %v, want some and an error", len(values), err)
	}
	long := []workv1.FeedbackRule{{Type: workv1.JSONPathsType, JsonPaths: []workv1.JsonPath{{Name: "long", Path: ".long"}}}}
	if values, err := feedback(bounded.NewBudget(), live, long, FeedbackPaths{}); len(values) != 0 || err == nil {
		t.Errorf("feedback() of a long text = %d values, %v, want none and an error", len(values), err)
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
			total += sizeOf(value.Name, &manifest.StatusFeedbacks.Values[i].Value)
		}
		if synced := meta.IsStatusConditionTrue(manifest.Conditions, workv1.ManifestStatusFeedbackSynced); synced != (len(manifest.StatusFeedbacks.Values) > 0) {
			t.Errorf("StatusFeedbackSynced is %v with %d values", synced, len(manifest.StatusFeedbacks.Values))
		}
	}
	if total == 0 || total > maxAllFeedback {
		t.Errorf("%d bytes of values are reported, want some and at most %d", total, maxAllFeedback)
	}
}

// TestLargeValuesAreNotEncoded: to go through all of this value takes longer than a test may.
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
		t.Errorf("fieldValue() = %v, %v, want an error", got, err)
	}
}
