package work

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// No expression uses more than the agent can spare, whatever it is about. Without its
// limits, most of these would end the agent.
func TestExpressionsAreLimited(t *testing.T) {
	evaluator := newEvaluator(FeedbackPaths{})
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
		got := evaluator.rules(t.Context(), bounded.NewBudget(), live, []workv1.ConditionRule{{Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: []string{expression}}})
		if len(got) != 1 || got[0].Status != metav1.ConditionFalse || got[0].Reason != workv1.ReasonConditionRuleExpressionError {
			t.Errorf("%s: got %+v", expression, got)
		}
	}
	for _, expression := range []string{
		`"a-b".replace("-", "+") == "a+b" && "aaa".replace("a", "b", 1) == "baa" && "ab".replace("", "-") == "-a-b-"`,
		`["a", "b"].join("-") == "a-b" && ["a", "b"].join() == "ab"`,
		`"%s is %d of %.1f%%: %x, %s".format(["x", 3, 1.5, "a", ["b"]]) == "x is 3 of 1.5%: 61, [b]"`,
		`object.long.replace("a", "b").size() == 500000`,
	} {
		got := evaluator.rules(t.Context(), bounded.NewBudget(), live, []workv1.ConditionRule{{Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: []string{expression}}})
		if len(got) != 1 || got[0].Status != metav1.ConditionTrue {
			t.Errorf("%s: got %+v", expression, got)
		}
	}
}

// The rules of one ManifestWork have a limit together, and those before it are still evaluated.
func TestRulesAreLimitedTogether(t *testing.T) {
	evaluator := newEvaluator(FeedbackPaths{})
	var rules []workv1.ConditionRule
	for i := range 100 {
		rules = append(rules, workv1.ConditionRule{
			Type: workv1.CelConditionExpressionsType, Condition: "C" + strings.Repeat("x", i),
			CelExpressions: []string{`lists.range(100).all(i, lists.range(100).all(j, i <= j + 100))`},
		})
	}
	got := evaluator.rules(t.Context(), bounded.NewBudget(), object(t, `{apiVersion: v1, kind: X}`), rules)
	first, last := got[0], got[len(got)-1]
	if first.Status != metav1.ConditionTrue || last.Status != metav1.ConditionFalse || !strings.Contains(last.Message, "not evaluated: too expensive") {
		t.Errorf("the first is %+v, the last %+v", first, last)
	}
	for i := 1; i < len(got); i++ {
		if got[i-1].Status == metav1.ConditionFalse && got[i].Status == metav1.ConditionTrue {
			t.Errorf("rule %d was evaluated after the limit was reached", i)
		}
	}
}

// Expressions may use the functions of upstream OCM agents and of Kubernetes.
func TestFunctionsOfExpressions(t *testing.T) {
	evaluator := newEvaluator(FeedbackPaths{})
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
		got := evaluator.rules(t.Context(), bounded.NewBudget(), live, []workv1.ConditionRule{{Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: []string{expression}}})
		if len(got) != 1 || got[0].Status != want || got[0].Reason != workv1.ReasonConditionRuleEvaluated {
			t.Errorf("%s: got %+v", expression, got)
		}
	}
}
