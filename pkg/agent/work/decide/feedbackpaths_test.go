package decide

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// secretive is an object whose data must not be reported by any path outside the allowed paths.
const secretive = `{apiVersion: v1, kind: Pod, metadata: {name: pod, namespace: ns, generation: 4, labels: {team: hunter2}, annotations: {note: x}},
  data: {password: hunter2, status: hunter2}, spec: {status: hunter2, containers: [{name: web, env: [{name: password, value: hunter2}]}]},
  status: {phase: Running, "dotted.name": y, conditions: [{type: Ready, status: "True"}, {type: Other, status: "False"}], nested: {status: {deep: z}}}}`

func allowed(t *testing.T, paths ...string) FeedbackPaths {
	t.Helper()
	allowed, err := ParseFeedbackPaths(paths)
	if err != nil {
		t.Fatal(err)
	}
	return allowed
}

func TestFeedbackPathsAllow(t *testing.T) {
	only := allowed(t, ".status", "{.metadata.annotations}")
	for _, path := range []string{
		".status", "{.status}", "$.status", "{$.status}", "@.status", "['status']", "$['status']", `.stat\us`,
		".status.phase", "['status']['phase']", ".status['phase','none']", `.status.dotted\.name`,
		".status.conditions[0].type", ".status.conditions[-1:].type", ".status.conditions[*].type", ".status.*", ".status..deep",
		`.status.conditions[?(@.type=="Ready")].status`, `.status.conditions[?(@.type)].status`,
		".metadata.annotations", ".metadata.annotations.note", ".metadata['annotations'].note",
	} {
		// The restricted agent must report the same values as an unrestricted agent.
		want, err := Feedback(bounded.NewBudget(), object(t, secretive), paths(path), FeedbackPaths{})
		if err != nil {
			t.Fatalf("Feedback(%s) without restriction = %v, want nil", path, err)
		}
		got, err := Feedback(bounded.NewBudget(), object(t, secretive), paths(path), only)
		if err != nil {
			t.Errorf("Feedback(%s) = %v, want nil", path, err)
		}
		// The order of the values of a wildcard is random.
		wildcard := strings.Contains(path, "*") || strings.Contains(path, "..")
		if diff := cmp.Diff(want, got); len(got) != len(want) || !wildcard && diff != "" {
			t.Errorf("Feedback(%s) differs from the values without restriction (-want +got):\n%s", path, diff)
		}
	}
}

func TestFeedbackPathsRefuse(t *testing.T) {
	only := allowed(t, ".status", ".metadata.annotations")
	for _, path := range []string{
		".data.password", "['data']['password']", "$.data", ".spec.status", ".data.status", ".spec..value", ".metadata.labels.team",
		// The path selects a parent of an allowed part.
		"$", "@", "{}", "{$}", ".metadata", "['metadata']", ".metadata.*", ".metadata..team", ".metadata['labels','annotations']",
		// Recursive descent and wildcards outside the allowed parts.
		"..status", "..password", "..", ".*", ".*.password", "[*]", "['status','data']", "['data','status']", "['status','status']",
		// Filters on fields outside the allowed parts.
		`[?(@.password)]`, `..[?(@.name=="password")].value`, `.spec.containers[?(@.name=="web")].env`,
		// Several paths, and text.
		".status}{.data.password", "{.status}{.data.password}", "{.status}{.data}", "{.data}{.status}", "{.status} {@.data}", "{.status}text", "text{.data}",
		"{range .status.conditions[*]}{.type}{end}", "{range .data}{.password}{end}", "range .data", "{.status}{range .data}{.password}{end}",
		// Literals, and words that are not fields.
		"'text'", `"text"`, "42", "4.2", "true", "status", "end", ".status 'text'", ".status.phase end", ".status range",
		// Similar names of other fields.
		".statu", ".statuss", `.status\.phase`, ".Status", "[0].status", ". status", ".status\u00a0",
	} {
		values, err := Feedback(bounded.NewBudget(), object(t, secretive), paths(path), only)
		if err == nil || len(values) > 0 {
			t.Errorf("Feedback(%s) = %v, %v, want no values and an error", path, values, err)
		}
	}
	values, err := Feedback(bounded.NewBudget(), object(t, secretive), paths(".data.password", ".status.phase"), only)
	if len(values) != 1 || values[0].Name != ".status.phase" || err == nil || !strings.Contains(err.Error(), ".data.password: the agent reports only fields within .status, .metadata.annotations") {
		t.Errorf("Feedback() = %v, %v, want .status.phase and an error about .data.password", values, err)
	}
}

// TestFeedbackPathsCannotBeLeft checks that no further step after an allowed path leads outside the
// allowed part.
func TestFeedbackPathsCannotBeLeft(t *testing.T) {
	only := allowed(t, ".status")
	for _, step := range []string{"$.data", "@.data", "$", "..", "..password", "['$']", "[?(@)]", `[?($.data.password=="hunter2")]`, "['phase',$.data]", ".*..*", "[::]"} {
		for _, path := range []string{".status" + step, ".status.conditions" + step, "['status']" + step} {
			values, _ := Feedback(bounded.NewBudget(), object(t, secretive), paths(path), only)
			for _, value := range values {
				if text := cmp.Diff(nil, value); strings.Contains(text, "hunter2") {
					t.Errorf("Feedback(%s) reported hidden data: %s", path, text)
				}
			}
		}
	}
}

func TestWellKnownStatusIsAlwaysAllowed(t *testing.T) {
	values, err := Feedback(bounded.NewBudget(), object(t, secretive), []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}, allowed(t, ".metadata.labels"))
	if err != nil || len(values) != 2 {
		t.Errorf("Feedback(WellKnownStatus) = %v, %v, want two values", values, err)
	}
}

func TestParseFeedbackPathsRefuses(t *testing.T) {
	for _, path := range []string{"", ".", "$", "status", "..status", ".*", ".status.*", ".status[0]", ".status['a','b']", "{.status}{.spec}", "{.status", ".status[", "'status'", ".status.", " "} {
		if got, err := ParseFeedbackPaths([]string{".spec", path}); err == nil {
			t.Errorf("ParseFeedbackPaths(%q) = %s, want an error", path, got)
		}
	}
}

// TestExpressionsReadOnlyAllowedParts checks that expressions read no other fields than JSON paths,
// because conditions and their messages are sent to the hub.
func TestExpressionsReadOnlyAllowedParts(t *testing.T) {
	evaluator := NewEvaluator(allowed(t, ".status", ".status.nested", ".metadata.annotations", ".spec.none"))
	live := object(t, secretive)
	for expression, want := range map[string]metav1.ConditionStatus{
		`object.status.phase == "Running" && object.status.nested.status.deep == "z"`:                       metav1.ConditionTrue,
		`object.metadata.name == "pod" && object.metadata.namespace == "ns" && object.kind == "Pod"`:        metav1.ConditionTrue,
		`object.metadata.generation == 4 && object.apiVersion == "v1"`:                                      metav1.ConditionTrue,
		`object.metadata.annotations.note == "x"`:                                                           metav1.ConditionTrue,
		`has(object.data) || has(object.metadata.labels) || has(object.spec.containers)`:                    metav1.ConditionFalse,
		`object.data.password == "hunter2"`:                                                                 metav1.ConditionFalse,
		`object.exists(k, k == "data") || object.metadata.exists(k, k == "labels")`:                         metav1.ConditionFalse,
		`object.spec.containers.size() == 1`:                                                                metav1.ConditionFalse,
		`int(object.data.password) == 1`:                                                                    metav1.ConditionFalse,
		`object.map(k, object[k]).exists(v, type(v) == map && v.exists(k, k == "password" || k == "team"))`: metav1.ConditionFalse,
	} {
		rule := workv1.ConditionRule{
			Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: []string{expression},
			MessageExpression: new(`"message " + object.data.password`),
		}
		got := evaluator.Rules(t.Context(), bounded.NewBudget(), live, []workv1.ConditionRule{rule})
		if len(got) != 1 || got[0].Status != want || strings.Contains(got[0].Message, "hunter2") {
			t.Errorf("Rules(%s) = %+v, want status %s without hidden data", expression, got, want)
		}
	}
	// A well-known rule can read all fields that it requires, but a message expression cannot.
	got := evaluator.Rules(t.Context(), bounded.NewBudget(), live, []workv1.ConditionRule{{Type: workv1.WellKnownConditionsType, Condition: workv1.WorkComplete, MessageExpression: new(`object.data.password`)}})
	if len(got) != 1 || got[0].Reason != workv1.ReasonConditionRuleEvaluated || strings.Contains(got[0].Message, "hunter2") {
		t.Errorf("Rules(WellKnownConditions) = %+v, want an evaluated condition without hidden data", got)
	}
	if diff := cmp.Diff(object(t, secretive).Object, live.Object); diff != "" {
		t.Errorf("Rules() changed the object (-want +got):\n%s", diff)
	}
}
