package clusteradm

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

func TestDifferences(t *testing.T) {
	for what, test := range map[string]struct {
		a, b string
		want []string
	}{
		"equal":                {`{"spec":{"a":1,"b":["x"]}}`, `{"spec":{"a":1,"b":["x"]}}`, nil},
		"more on one side":     {`{"spec":{"a":1}}`, `{"spec":{"a":1,"b":2}}`, nil},
		"another value":        {`{"spec":{"a":1}}`, `{"spec":{"a":2}}`, []string{".spec.a"}},
		"a lost value":         {`{"spec":{"a":{"b":"x"}}}`, `{"spec":{}}`, []string{".spec.a"}},
		"a lost false":         {`{"spec":{"a":false,"b":0,"c":"","d":[],"e":{"f":null}}}`, `{"spec":{}}`, nil},
		"another true":         {`{"spec":{"a":true}}`, `{"spec":{"a":false}}`, []string{".spec.a"}},
		"a shorter list":       {`{"spec":{"a":["x","y"]}}`, `{"spec":{"a":["x"]}}`, []string{".spec.a"}},
		"an item":              {`{"spec":{"a":[{"b":1}]}}`, `{"spec":{"a":[{"b":2}]}}`, []string{".spec.a[0].b"}},
		"spelling of a time":   {`{"a":"2026-11-25T02:00:00Z"}`, `{"a":"2026-11-25T03:00:00+01:00"}`, nil},
		"of a duration":        {`{"a":"24h"}`, `{"a":"24h0m0s"}`, nil},
		"of a quantity":        {`{"a":"1000m"}`, `{"a":"1"}`, nil},
		"another kind of data": {`{"a":"1"}`, `{"a":1}`, []string{".a"}},
	} {
		var a, b map[string]any
		if err := json.Unmarshal([]byte(test.a), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(test.b), &b); err != nil {
			t.Fatal(err)
		}
		if got := differences(a, b); !slices.Equal(got, test.want) {
			t.Errorf("%s: differences(%s, %s) = %q, want %q", what, test.a, test.b, got, test.want)
		}
	}
}

// TestMigrationBelievesNoCluster checks that a migration to the server copies neither the creator of a ManagedCluster nor an
// epoch, unless it is the recorded one: everyone with permission to update ManagedClusters could write them before.
func TestMigrationBelievesNoCluster(t *testing.T) {
	recorded := rehoming.Epoch{Number: 2, Hub: "hub"}
	for _, test := range []struct {
		epoch, want string
		hub         rehoming.Epoch
	}{
		{"2/hub", "2/hub", recorded}, {"9007199254740992/evil", "", recorded}, {"x", "", recorded}, {"1/evil", "", rehoming.Epoch{}},
	} {
		cluster := &unstructured.Unstructured{Object: map[string]any{}}
		cluster.SetAnnotations(map[string]string{rehoming.EpochAnnotation: test.epoch, requestedByAnnotation: "mallory", "kept": "yes"})
		findings := distrust(cluster, test.hub)
		annotations := cluster.GetAnnotations()
		if annotations[rehoming.EpochAnnotation] != test.want || annotations[requestedByAnnotation] != "" || annotations["kept"] != "yes" || (len(findings) > 0) != (test.want == "") {
			t.Errorf("distrust() of epoch %q on a hub with epoch %q = %v and annotations %v, want epoch %q and no creator", test.epoch, test.hub, findings, annotations, test.want)
		}
	}
}
