package integration_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func configMapWork(name string, more ...string) *workv1.ManifestWork {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster1, Name: name}}
	for _, manifest := range append([]string{fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"}}`, name)}, more...) {
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(manifest)}})
	}
	return work
}

func (f *fleet) createWork(t *testing.T, work *workv1.ManifestWork) {
	t.Helper()
	works := f.ocm.WorkV1().ManifestWorks(cluster1)
	if _, err := works.Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := works.Delete(context.WithoutCancel(t.Context()), work.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// workApplied waits until a work reports whether it is applied, and returns the message.
func (f *fleet) workApplied(t *testing.T, name string, want metav1.ConditionStatus) string {
	t.Helper()
	var message string
	eventually(t, fmt.Sprintf("work %s reports Applied %s", name, want), func(ctx context.Context) error {
		work, err := f.ocm.WorkV1().ManifestWorks(cluster1).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		if applied == nil || applied.Status != want {
			return fmt.Errorf("its conditions: %v", work.Status.Conditions)
		}
		message = applied.Message
		return nil
	})
	return message
}

// A work that cannot be applied says so, and holds neither what it also
// delivers nor any other work.
func TestBadWorkHoldsNoOther(t *testing.T) {
	f := shared(t)
	bad := configMapWork("bad-work",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"lost","namespace":"no-such-namespace"}}`,
		`{"apiVersion":"example.com/v1","kind":"Unknown","metadata":{"name":"what"}}`)
	f.createWork(t, bad)
	f.workApplied(t, bad.Name, metav1.ConditionFalse)
	for i := range 5 {
		good := configMapWork(fmt.Sprintf("good-work-%d", i))
		f.createWork(t, good)
		f.workApplied(t, good.Name, metav1.ConditionTrue)
	}
	if _, err := f.managed.CoreV1().ConfigMaps("default").Get(t.Context(), bad.Name, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
