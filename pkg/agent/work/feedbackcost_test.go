package work

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// TestPathsThatSelectTooMuch: no path of a work costs the agent more memory than it
// can afford, and those that people write are evaluated.
func TestPathsThatSelectTooMuch(t *testing.T) {
	var deep any = "x"
	for range 2000 {
		deep = map[string]any{"a": deep}
	}
	conditions := []any{}
	for range 100 {
		conditions = append(conditions, map[string]any{"type": "Ready", "status": "True", "reason": "r"})
	}
	live := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "spec": deep,
		"status": map[string]any{"phase": "Running", "conditions": conditions, "more": map[string]any{"x": map[string]any{"y": "z"}}},
	}}
	union := func(times int, names ...string) string {
		var path strings.Builder
		for _, name := range names {
			path.WriteString("[" + strings.TrimSuffix(strings.Repeat("'"+name+"',", times), ",") + "]")
		}
		return path.String()
	}
	for path, want := range map[string]bool{
		".status.phase": true,
		`.status.conditions[?(@.type=="Ready")].status`: true,
		".status.conditions[*]['type','status']":        true,
		".status.conditions[0:3].type":                  true,
		"{.status['phase','reason']}":                   true,
		union(1000, "status", "more", "x", "y"):         false,
		"{" + union(1000, "status", "more", "x") + "}":  false,
		"..a..a..a": false,
		".status.conditions[?(@" + union(1000, "type", "x") + `=="Ready")].status`:    false,
		"{range .status.conditions[*]}{range .status.conditions[*]}{.type}{end}{end}": false,
	} {
		_, err := valueOf(live, workv1.JsonPath{Name: "n", Path: path})
		if len(path) > 80 {
			path = path[:80]
		}
		if got := !errors.Is(err, errTooMuch); got != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
