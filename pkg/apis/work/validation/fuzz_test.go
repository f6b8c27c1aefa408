package validation

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work/limits"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// FuzzManifest searches for manifests that the hub and the agent read as different objects, and
// for manifests that exceed the limits.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"},"data":{"a":"b"}}`,
		`{"apiVersion":"v1","kind":"List","metadata":{},"items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}]}`,
		`{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"name":"a"},"items":[{}]}`,
		`{"apiVersion":"v1","apiVersion":"apps/v1","kind":"A","metadata":{"name":"a","name":"b"}}`,
		`{"apiversion":"v1","KIND":"ConfigMap","Metadata":{"Name":"a"}}`,
		`{"apiVersion":"a/b/c","kind":"../../x","metadata":{"name":"../x","namespace":"a/b"}}`,
		`{"apiVersion":"v1","kind":"A","metadata":{"name":"a","labels":{"a":1},"annotations":[],"uid":1,"resourceVersion":{}}}`,
		`{"apiVersion":"v1","kind":"A","metadata":{"name":"a","ownerReferences":[{"uid":"a"},{"uid":"a"}],"finalizers":["x"],"managedFields":[{}]}}`,
		`{"a":1e400,"b":123456789012345678901234567890,"c":-0,"d":1e-400,"e":1.0}`,
		`{"a":"\ud800","b":"\u0000","apiVersion":"v1"}`,
		"{\"a\":\"\xff\"}", `[]`, `null`, `"a"`, `1`, ``, `{`, strings.Repeat("[", 300), strings.Repeat(`{"a":`, 300),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		left := limits.MaxValues
		path := field.NewPath("manifest")
		checked := limits.Check(raw, &left, path)
		if checked != nil {
			if len(checked.Error()) > 64*limits.MaxDepth*2 {
				t.Errorf("length of the error of Check() = %d bytes, want at most %d", len(checked.Error()), 64*limits.MaxDepth*2)
			}
			return
		}
		id, errs := identify(raw, path)
		if len(errs) > 0 {
			return
		}
		if !json.Valid(raw) {
			t.Fatalf("identify(%q) = %s, want an error for invalid JSON", raw, id)
		}
		agents := &unstructured.Unstructured{}
		if err := agents.UnmarshalJSON(raw); err != nil {
			t.Fatalf("identify(%q) = %s, want an error because the agent cannot decode it: %v", raw, id, err)
		}
		read := identity{agents.GetAPIVersion(), agents.GetKind(), agents.GetNamespace(), agents.GetName()}
		if read != id {
			t.Errorf("identify(%q) = %s, want %s as in the agent", raw, id, read)
		}
		if errs := validateManifests([]workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: raw}}}, 0, path); len(errs) > 0 {
			t.Errorf("validateManifests(%q) = %v, want no error as for its parts", raw, errs)
		}
	})
}
