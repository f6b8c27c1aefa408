package conformance

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"

	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// GitOps tools apply the same file repeatedly. A field that is empty in the file must not cause a
// difference with client-side apply, with server-side apply, or after a change between the two.
func TestFieldsWrittenEmptyAreKept(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(localhub.Root(), "pkg", "apis", "scheme", "testdata", "empty", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("sample files = %v (%v), want at least one", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			content, err := readYAML(file)
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{Object: content}
			all := kinds()
			i := slices.IndexFunc(all, func(k kind) bool { return k.gvk() == object.GroupVersionKind() })
			if i < 0 {
				t.Fatalf("kind of %s = %s, want a served kind", file, object.GroupVersionKind())
			}
			p := shared.newPlace(t, all[i])
			object.SetNamespace(p.namespace)
			if p.ClusterScoped {
				object.SetName(object.GetName() + "-" + rand.String(8))
			}
			p.wantNoDifference(t, object)
		})
	}
}

func (p *place) wantNoDifference(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	name := object.GetName()
	wantContains(t, p.runWith(t, object, "apply", "--filename=-"), "created")
	for _, flags := range [][]string{nil, {"--server-side"}, {"--server-side", "--field-manager=gitops"}} {
		apply := append([]string{"apply", "--filename=-"}, flags...)
		diff := append([]string{"diff", "--filename=-"}, flags...)
		if len(flags) > 0 {
			// The first apply with this manager takes ownership of the fields. It must not conflict.
			p.runWith(t, object, apply...)
		}
		// A controller may write the status between the two reads, so the check is repeated.
		await.Eventually(t, fmt.Sprintf("kubectl %s does not change the object", strings.Join(apply, " ")), func(context.Context) error {
			before := p.get(t, name)
			if out := p.runWith(t, object, apply...); len(flags) == 0 && !strings.Contains(out, "unchanged") {
				t.Fatalf("kubectl %s: got %q, want unchanged; the object is %v", strings.Join(apply, " "), out, before.Object["spec"])
			}
			if out, stderr, err := p.kubectl(t, object, diff...); err != nil || out != "" {
				return fmt.Errorf("kubectl %s: got %s%s (%v), want no difference", strings.Join(diff, " "), stderr, out, err)
			}
			after := p.get(t, name)
			if before.GetResourceVersion() != after.GetResourceVersion() {
				return fmt.Errorf("resourceVersion = %s, want %s as before", after.GetResourceVersion(), before.GetResourceVersion())
			}
			if !equality.Semantic.DeepEqual(before.GetManagedFields(), after.GetManagedFields()) {
				return fmt.Errorf("managedFields = %v, want %v as before", after.GetManagedFields(), before.GetManagedFields())
			}
			return nil
		})
		if got := p.get(t, name).GetGeneration(); got > 1 {
			t.Errorf("generation after kubectl %s = %d, want 1", strings.Join(apply, " "), got)
		}
	}
}
