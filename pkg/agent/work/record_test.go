package work

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/fake"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
)

// TestAppliedVersionEndsWithTheNext checks that a version of the manifests is not taken for applied after the next one
// may have been applied in part, such as after a rollback.
func TestAppliedVersionEndsWithTheNext(t *testing.T) {
	c := &Controller{Config: Config{Managed: fake.NewSimpleClientset()}}
	c.recordCache = newestOf(externalversions.NewSharedInformerFactory(c.Managed, 0).Work().V1().AppliedManifestWorks().Informer())
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	for i, step := range []struct {
		manifest       string
		applied, clean bool
	}{
		{manifest: "v1", applied: true, clean: true},
		{manifest: "v1", applied: true, clean: true},
		{manifest: "v2"},
		{manifest: "v1"},
		{manifest: "v1", clean: true},
		{manifest: "v1", applied: true},
	} {
		items := []*decide.Item{{Name: "a", Hash: step.manifest}}
		record, err := c.ensureRecord(t.Context(), work, &workState{}, items)
		if err != nil {
			t.Fatal(err)
		}
		if got := record.Annotations[appliedAnnotation] == appliedVersion(items); got != step.applied {
			t.Errorf("step %d: %s is applied = %t, want %t", i, step.manifest, got, step.applied)
		}
		if step.clean {
			if err := c.markApplied(t.Context(), record, items); err != nil {
				t.Fatal(err)
			}
		}
	}
}
