package migrate

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/cli"
	"open-cluster-management.io/hub-apiserver/pkg/clusteradm/handover"
)

// TestMigrationBackWritesChanges checks that a migration to CustomResourceDefinitions updates every object that has changed,
// and no other.
func TestMigrationBackWritesChanges(t *testing.T) {
	manifest := func(key string, value any) func(*unstructured.Unstructured) {
		return func(work *unstructured.Unstructured) {
			_ = unstructured.SetNestedSlice(work.Object, []any{map[string]any{"kind": "Deployment", key: value}}, "spec", "workload", "manifests")
		}
	}
	label := func(value string) func(*unstructured.Unstructured) {
		return func(work *unstructured.Unstructured) { work.SetLabels(map[string]string{"team": value}) }
	}
	kind := &handover.CustomKind{
		Kind: handover.Kind{Name: handover.KindManifestWork, Resource: manifestWorks, OCM: true}, CRD: &unstructured.Unstructured{Object: map[string]any{}}, Version: manifestWorks.GroupVersion(),
	}
	for name, test := range map[string]struct {
		kept, served func(*unstructured.Unstructured)
		changed      bool
	}{
		"equal":             {label("a"), label("a"), false},
		"empty map":         {nil, func(work *unstructured.Unstructured) { work.SetAnnotations(map[string]string{}) }, false},
		"label":             {label("1"), label("1.0"), true},
		"removed label":     {label("a"), nil, true},
		"zero":              {nil, manifest("replicas", int64(0)), true},
		"another spelling":  {manifest("memory", "1000m"), manifest("memory", "1"), true},
		"finalizer":         {func(work *unstructured.Unstructured) { work.SetFinalizers([]string{"a/b"}) }, nil, true},
		"owner":             {nil, ownedBy("owner"), true},
		"embedded status":   {nil, applied, true}, // this CustomResourceDefinition has no subresource status
		"unchanged content": {manifest("memory", "1"), manifest("memory", "1"), false},
	} {
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{kind.Served(): kind.Name + "List", kind.Kept(): kind.Name + "List"})
		kept := manifestWork("work", "ConfigMap", test.kept)
		kept.SetUID(types.UID("kept"))
		kept.SetAPIVersion(kind.Kept().GroupVersion().String())
		for resource, object := range map[schema.GroupVersionResource]*unstructured.Unstructured{kind.Served(): manifestWork("work", "ConfigMap", test.served), kind.Kept(): kept} {
			if err := client.Tracker().Create(resource, object, inCluster1); err != nil {
				t.Fatal(err)
			}
		}
		m := &migration{Clients: &cli.Clients{Dynamic: client}, kinds: []*handover.CustomKind{kind}}
		if _, findings, err := m.copyFromServer(t.Context()); err != nil || len(findings) > 0 {
			t.Errorf("%s: copyFromServer() = %v, %v, want no findings", name, findings, err)
		}
		var writes []string
		for _, action := range client.Actions() {
			if verb := action.GetVerb(); verb != "list" && verb != "get" {
				writes = append(writes, verb)
			}
		}
		var want []string
		if test.changed {
			want = []string{"update"}
		}
		if !slices.Equal(writes, want) {
			t.Errorf("%s: writes of the object = %q, want %q", name, writes, want)
		}
	}
}
