package executor

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

func (f *fleet) createWork(t *testing.T, work *workv1.ManifestWork) {
	t.Helper()
	works := f.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	if _, err := works.Create(t.Context(), work, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := works.Delete(context.WithoutCancel(t.Context()), work.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// workApplied waits until the condition Applied of a ManifestWork has a status, and returns its
// message.
func (f *fleet) workApplied(t *testing.T, name string, want metav1.ConditionStatus) string {
	t.Helper()
	var message string
	framework.Eventually(t, fmt.Sprintf("ManifestWork %s has condition Applied=%s", name, want), func(ctx context.Context) error {
		work, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		if applied == nil || applied.Status != want {
			return fmt.Errorf("conditions = %v", work.Status.Conditions)
		}
		message = applied.Message
		return nil
	})
	return message
}

// TestFailedManifestWorkBlocksNoOther checks that a ManifestWork reports manifests that cannot be
// applied. They block neither its other manifests nor other ManifestWorks.
func TestFailedManifestWorkBlocksNoOther(t *testing.T) {
	t.Parallel()
	f := shared(t)
	bad := framework.ConfigMapWork("bad-work",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"lost","namespace":"no-such-namespace"}}`,
		`{"apiVersion":"example.com/v1","kind":"Unknown","metadata":{"name":"what"}}`)
	f.createWork(t, bad)
	f.workApplied(t, bad.Name, metav1.ConditionFalse)
	for i := range 5 {
		good := framework.ConfigMapWork(fmt.Sprintf("good-work-%d", i))
		f.createWork(t, good)
		f.workApplied(t, good.Name, metav1.ConditionTrue)
	}
	if _, err := f.ManagedClient.CoreV1().ConfigMaps("default").Get(t.Context(), bad.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("get ConfigMap %s = %v, want it applied", bad.Name, err)
	}
}
