package manifestwork

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// checks records the checks of a guard, by the name of the ServiceAccount.
type checks []string

func nameOf(executor *workv1.ManifestWorkExecutor) string {
	if executor == nil {
		return "none"
	}
	return executor.Subject.ServiceAccount.Name
}

func (c *checks) Check(_ context.Context, _, _ string, executor *workv1.ManifestWorkExecutor, former ...*workv1.ManifestWorkExecutor) error {
	*c = append(*c, nameOf(executor))
	for _, replaced := range former {
		*c = append(*c, "former "+nameOf(replaced))
	}
	return nil
}

func (c *checks) CheckOwners(context.Context, string, string) error {
	*c = append(*c, "owners")
	return nil
}

// TestExecutorGuard checks which executors the author of a write must be allowed to use.
func TestExecutorGuard(t *testing.T) {
	as := func(name string) *workv1.ManifestWorkExecutor {
		return &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
			ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "n", Name: name},
		}}
	}
	for name, test := range map[string]struct {
		change func(*work.ManifestWork)
		want   checks
	}{
		"no change": {func(*work.ManifestWork) {}, nil},
		"a label":   {func(w *work.ManifestWork) { w.Labels = map[string]string{"a": "b"} }, nil},
		"status":    {func(w *work.ManifestWork) { w.Status.Conditions = []metav1.Condition{{Type: "Applied"}} }, nil},
		"manifests": {func(w *work.ManifestWork) {
			w.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(`{}`)}}}
		}, checks{"a"}},
		"another executor": {func(w *work.ManifestWork) { w.Spec.Executor = as("b") }, checks{"b", "former a"}},
		"no executor":      {func(w *work.ManifestWork) { w.Spec.Executor = nil }, checks{"none", "former a"}},
		"an owner":         {func(w *work.ManifestWork) { w.OwnerReferences = []metav1.OwnerReference{{Name: "o", UID: "u"}} }, checks{"owners"}},
	} {
		old := &work.ManifestWork{Spec: workv1.ManifestWorkSpec{Executor: as("a")}}
		updated := old.DeepCopy()
		test.change(updated)
		var made checks
		if err := executorGuard(&made)(t.Context(), updated, old); err != nil || !slices.Equal(made, test.want) {
			t.Errorf("checks of an update of %s = %q, %v, want %q", name, made, err, test.want)
		}
	}
	var made checks
	if err := executorGuard(&made)(t.Context(), &work.ManifestWork{}, nil); err != nil || !slices.Equal(made, checks{"none"}) {
		t.Errorf("checks of a new ManifestWork = %q, %v, want none", made, err)
	}
}
