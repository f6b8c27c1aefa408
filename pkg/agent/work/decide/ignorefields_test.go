package decide

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

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
		"both spellings": {
			field: workv1.IgnoreField{JSONPaths: []string{`.metadata.annotations.a\.b/c`}, JQPathExpressions: []string{`.metadata.annotations['a.b/c']`, ".spec.nums[-1]"}},
			live:  `{apiVersion: v1, kind: X}`,
			want:  `{apiVersion: v1, kind: X, metadata: {annotations: {}}, spec: {replicas: 3, l: [{name: a, image: x}, {name: b, image: x}], nums: [1, 2]}}`,
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
			err := OmitIgnored(t.Context(), bounded.NewBudget(), got, live, test.field)
			if (err != nil) != test.fails {
				t.Fatalf("OmitIgnored() = %v, want an error = %t", err, test.fails)
			}
			if err == nil {
				if diff := cmp.Diff(object(t, test.want).Object, got.Object); diff != "" {
					t.Errorf("OmitIgnored() (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestIgnoresNothing checks that ignoreFields that select nothing in the manifest are named.
func TestIgnoresNothing(t *testing.T) {
	it := &Item{Object: object(t, `{apiVersion: v1, kind: X, data: {a.b: "1"}}`)}
	it.Config.Strategy = workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply, ServerSideApply: &workv1.ServerSideApplyConfig{
		IgnoreFields: []workv1.IgnoreField{
			{JSONPaths: []string{`.data.a\.b`, ".data.a.b"}, JQPathExpressions: []string{`.data["a.b"]`, ".data.c"}, JSONPointers: []string{"/data/a.b", "/data/d"}},
		},
	}}
	const want = "ignoreFields have no effect on fields that the manifest does not contain. These paths select nothing: /data/d, .data.a.b, .data.c"
	if got := IgnoresNothing(t.Context(), bounded.NewBudget(), it); got != want {
		t.Errorf("IgnoresNothing() = %q, want %q", got, want)
	}
	it.Config.Strategy.Type = workv1.UpdateStrategyTypeUpdate
	if got := IgnoresNothing(t.Context(), bounded.NewBudget(), it); got != "" {
		t.Errorf("IgnoresNothing() of another strategy = %q, want none", got)
	}
}
