package decide

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// TestExpressionsAreLimited checks that no expression exceeds its limits of time and memory.
// Without the limits, most of these expressions would crash the agent.
func TestExpressionsAreLimited(t *testing.T) {
	evaluator := NewEvaluator(FeedbackPaths{})
	live := object(t, `{apiVersion: v1, kind: X, one: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}`)
	live.Object["long"] = strings.Repeat("a", 500_000)
	for _, expression := range []string{
		`object.long.replace("", object.long) == ""`,
		`object.long.replace("a", object.long, 100) == ""`,
		`[object.long].map(t, t.replace("", object.long)).join("") == ""`,
		`lists.range(1000).map(i, object.long).join("") == ""`,
		`lists.range(1000).join(object.long) == ""`,
		`lists.range(1000).map(i, "a").join(object.long) == ""`,
		`"%s".format([lists.range(1000).map(i, object.long)]) == ""`,
		`"%s".format([{"a": object.long, object.long: lists.range(1000).map(i, object.long)}]) == ""`,
		`"%x%x%x%x%x%x%x%x".format([object.long, object.long, object.long, object.long, object.long, object.long, object.long, object.long]) == ""`,
		`"%.1000000000f".format([1.0]) == ""`,
		`lists.range(1000000000).size() > 0`,
		`lists.range(1000).map(i, lists.range(1000000)).size() > 0`,
		`lists.range(1000000).all(i, lists.range(1000000).all(k, k >= 0))`,
		`object.one.all(a, object.one.all(b, object.one.all(c, object.one.all(d, object.one.all(e, object.one.all(f, a+b+c+d+e+f > 0))))))`,
	} {
		got := evaluator.Rules(t.Context(), bounded.NewBudget(), live, []workv1.ConditionRule{{Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: []string{expression}}})
		if len(got) != 1 || got[0].Status != metav1.ConditionFalse || got[0].Reason != workv1.ReasonConditionRuleExpressionError {
			t.Errorf("Rules(%s) = %+v, want False with reason ConditionRuleExpressionError", expression, got)
		}
	}
	for _, expression := range []string{
		`"a-b".replace("-", "+") == "a+b" && "aaa".replace("a", "b", 1) == "baa" && "ab".replace("", "-") == "-a-b-"`,
		`["a", "b"].join("-") == "a-b" && ["a", "b"].join() == "ab"`,
		`"%s is %d of %.1f%%: %x, %s".format(["x", 3, 1.5, "a", ["b"]]) == "x is 3 of 1.5%: 61, [b]"`,
		`object.long.replace("a", "b").size() == 500000`,
	} {
		got := evaluator.Rules(t.Context(), bounded.NewBudget(), live, []workv1.ConditionRule{{Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: []string{expression}}})
		if len(got) != 1 || got[0].Status != metav1.ConditionTrue {
			t.Errorf("Rules(%s) = %+v, want True", expression, got)
		}
	}
}

// TestRulesAreLimitedTogether checks that the rules of one ManifestWork share a limit, and that the
// rules before the limit is reached are evaluated.
func TestRulesAreLimitedTogether(t *testing.T) {
	evaluator := NewEvaluator(FeedbackPaths{})
	var rules []workv1.ConditionRule
	for i := range 100 {
		rules = append(rules, workv1.ConditionRule{
			Type: workv1.CelConditionExpressionsType, Condition: "C" + strings.Repeat("x", i),
			CelExpressions: []string{`lists.range(100).all(i, lists.range(100).all(j, i <= j + 100))`},
		})
	}
	got := evaluator.Rules(t.Context(), bounded.NewBudget(), object(t, `{apiVersion: v1, kind: X}`), rules)
	first, last := got[0], got[len(got)-1]
	if first.Status != metav1.ConditionTrue || last.Status != metav1.ConditionFalse || !strings.Contains(last.Message, "not evaluated: too expensive") {
		t.Errorf("Rules() returned first %+v and last %+v, want the first True and the last False as too expensive", first, last)
	}
	for i := 1; i < len(got); i++ {
		if got[i-1].Status == metav1.ConditionFalse && got[i].Status == metav1.ConditionTrue {
			t.Errorf("rule %d was evaluated after the limit was reached, want no further evaluation", i)
		}
	}
}

// TestFunctionsOfExpressions checks the functions of upstream OCM agents and of Kubernetes.
func TestFunctionsOfExpressions(t *testing.T) {
	evaluator := NewEvaluator(FeedbackPaths{})
	live := object(t, `{apiVersion: v1, kind: X, status: {memory: 1Gi, version: "1.2.3", replicas: [1, 2], conditions: [{type: Ready, status: "True"}]}, empty: {conditions: []}, none: {}}`)
	for expression, want := range map[string]metav1.ConditionStatus{
		`hasConditions(object.status) && object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`:                metav1.ConditionTrue,
		`hasConditions(object.status) ? object.status.conditions.filter(c, c.type == 'Ready').exists(c, c.status == 'True') : false`: metav1.ConditionTrue,
		`hasConditions(object.empty) || hasConditions(object.none) || hasConditions("text") || hasConditions({"conditions": null})`:  metav1.ConditionFalse,
		`quantity(object.status.memory).isGreaterThan(quantity("512Mi"))`:                                                            metav1.ConditionTrue,
		`semver(object.status.version).isGreaterThan(semver("1.0.0"))`:                                                               metav1.ConditionTrue,
		`object.status.replicas.sum() == 3 && isURL("https://a.b/c") && isIP("10.0.0.1") && "a1".find("[0-9]") == "1"`:               metav1.ConditionTrue,
		`object.?missing.orValue("x") == "x"`: metav1.ConditionTrue,
	} {
		got := evaluator.Rules(t.Context(), bounded.NewBudget(), live, []workv1.ConditionRule{{Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: []string{expression}}})
		if len(got) != 1 || got[0].Status != want || got[0].Reason != workv1.ReasonConditionRuleEvaluated {
			t.Errorf("Rules(%s) = %+v, want %s", expression, got, want)
		}
	}
}

func TestConditionRules(t *testing.T) {
	evaluator := NewEvaluator(FeedbackPaths{})
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
			got := evaluator.Rules(t.Context(), bounded.NewBudget(), object(t, test.live), []workv1.ConditionRule{test.rule})
			if len(got) != 1 {
				t.Fatalf("Rules() = %v, want one condition", got)
			}
			if got[0].Status != test.status || got[0].Reason != test.reason || test.message != "*" && got[0].Message != test.message {
				t.Errorf("Rules() = %+v, want status %s, reason %s, message %q", got[0], test.status, test.reason, test.message)
			}
		})
	}
	reserved := cel("true")
	reserved.Condition = workv1.WorkApplied
	if got := evaluator.Rules(t.Context(), bounded.NewBudget(), object(t, `{apiVersion: v1, kind: X}`), []workv1.ConditionRule{reserved}); len(got) != 0 {
		t.Errorf("Rules() with a reserved condition type = %v, want none", got)
	}
}
