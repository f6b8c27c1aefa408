package tracing

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const forged = "00-11111111111111111111111111111111-2222222222222222-01"

func TestOnlySampledRequestsSetTheAnnotation(t *testing.T) {
	t.Parallel()
	f := shared(t)
	tenant := framework.NewCaller(t, f.Hub, framework.Unique("tenant"))
	tenant.May(t, framework.Cluster1, rbacv1.PolicyRule{APIGroups: []string{workv1.GroupName}, Resources: []string{"manifestworks"}, Verbs: []string{"create"}})
	for name, by := range map[string]*caller{
		"untraced":   {Clientset: f.OCM},
		"unsampled":  f.traced(t, false),
		"of-tenants": newCaller(t, tenant.Config, true),
	} {
		t.Run(name, func(t *testing.T) {
			work := framework.ConfigMapWork(framework.Unique(name))
			work.Annotations = map[string]string{workv1.TraceparentAnnotation: forged, "mine": "kept"}
			created := f.createWork(t, by, work)
			if value, set := created.Annotations[workv1.TraceparentAnnotation]; set || created.Annotations["mine"] != "kept" {
				t.Errorf("annotations of the created ManifestWork = %v, want only the tenant's, not %q", created.Annotations, value)
			}
		})
	}
}

func TestSameSpecUnderAnotherTraceIsNoWrite(t *testing.T) {
	t.Parallel()
	f := shared(t)
	name, first := framework.Unique("same"), f.traced(t, true)
	works := f.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	applied := framework.ConfigMapWork(name)
	applied.TypeMeta = metav1.TypeMeta{APIVersion: workv1.SchemeGroupVersion.String(), Kind: "ManifestWork"}
	content := framework.Must(json.Marshal(applied))(t)
	apply := func(by *caller, content []byte) *workv1.ManifestWork {
		t.Helper()
		return framework.Must(by.WorkV1().ManifestWorks(framework.Cluster1).Patch(t.Context(), name, types.ApplyPatchType, content, metav1.PatchOptions{FieldManager: "gitops"}))(t)
	}
	apply(first, content)
	t.Cleanup(func() {
		if err := works.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	f.passIn(t, first)
	stored := f.settled(t, name)
	if value := stored.Annotations[workv1.TraceparentAnnotation]; !strings.Contains(value, first.trace) {
		t.Fatalf("annotation of the ManifestWork = %q, want the trace %s", value, first.trace)
	}

	unchanged := func(what string, got *workv1.ManifestWork) {
		t.Helper()
		if got.ResourceVersion != stored.ResourceVersion || got.Annotations[workv1.TraceparentAnnotation] != stored.Annotations[workv1.TraceparentAnnotation] {
			t.Errorf("%s wrote resourceVersion %s with annotation %q, want no write: %s with %q", what,
				got.ResourceVersion, got.Annotations[workv1.TraceparentAnnotation], stored.ResourceVersion, stored.Annotations[workv1.TraceparentAnnotation])
		}
	}
	second := f.traced(t, true)
	unchanged("server-side apply", apply(second, content))
	unchanged("an untraced server-side apply", apply(&caller{Clientset: f.OCM}, content))
	applied.Annotations = map[string]string{workv1.TraceparentAnnotation: forged}
	unchanged("server-side apply with a forged annotation", apply(second, framework.Must(json.Marshal(applied))(t)))
	put := stored.DeepCopy()
	unchanged("an update", framework.Must(second.WorkV1().ManifestWorks(framework.Cluster1).Update(t.Context(), put, metav1.UpdateOptions{}))(t))
	put = stored.DeepCopy()
	delete(put.Annotations, workv1.TraceparentAnnotation)
	unchanged("an update without the annotation", framework.Must(second.WorkV1().ManifestWorks(framework.Cluster1).Update(t.Context(), put, metav1.UpdateOptions{}))(t))
	unchanged("a patch of the annotation", framework.Must(second.WorkV1().ManifestWorks(framework.Cluster1).Patch(t.Context(), name, types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, workv1.TraceparentAnnotation)), metav1.PatchOptions{}))(t))

	// An unsampled change of the spec ends the trace.
	changed := stored.DeepCopy()
	changed.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	after := framework.Must(works.Update(t.Context(), changed, metav1.UpdateOptions{}))(t)
	if value, set := after.Annotations[workv1.TraceparentAnnotation]; set {
		t.Errorf("annotation after an untraced change = %q, want none", value)
	}
}

func TestKubectlApplyOfTracedManifestWork(t *testing.T) {
	t.Parallel()
	f := shared(t)
	work := framework.ConfigMapWork(framework.Unique("kubectl"))
	work.TypeMeta = metav1.TypeMeta{APIVersion: workv1.SchemeGroupVersion.String(), Kind: "ManifestWork"}
	manifest := string(framework.Must(json.Marshal(work))(t))
	kubectl := func(want string, args ...string) {
		t.Helper()
		out, err := f.Kubectl(t, manifest, args...)
		if err != nil || !strings.Contains(out, want) {
			t.Fatalf("kubectl %v = %q, %v, want %q", args, out, err, want)
		}
	}
	kubectl("created", "apply", "-f", "-")
	t.Cleanup(func() {
		if err := f.OCM.WorkV1().ManifestWorks(work.Namespace).Delete(context.WithoutCancel(t.Context()), work.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// The last-applied configuration contains the manifest, and a traced request restores it.
	by := f.traced(t, true)
	for _, option := range []string{`{"propagationPolicy":"Orphan"}`, `null`} {
		framework.Must(by.WorkV1().ManifestWorks(work.Namespace).Patch(t.Context(), work.Name, types.MergePatchType, []byte(`{"spec":{"deleteOption":`+option+`}}`), metav1.PatchOptions{}))(t)
	}
	current := framework.Must(f.OCM.WorkV1().ManifestWorks(work.Namespace).Get(t.Context(), work.Name, metav1.GetOptions{}))(t)
	if value := current.Annotations[workv1.TraceparentAnnotation]; !strings.Contains(value, by.trace) {
		t.Fatalf("annotation of the ManifestWork = %q, want the trace %s", value, by.trace)
	}
	kubectl("unchanged", "apply", "-f", "-")
	kubectl("", "diff", "-f", "-")
	kubectl("", "diff", "--server-side", "--field-manager=kubectl-client-side-apply", "-f", "-")
}

func TestControllerRemovesTheTraceOfAnotherWriter(t *testing.T) {
	t.Parallel()
	f := shared(t)
	by, name := f.traced(t, true), framework.Unique("restored")
	framework.CreatePermission(t, by, framework.Permission(name))
	cp := f.Applied(t, name)
	work := f.WorkOf(t, cp)
	if value := work.Annotations[workv1.TraceparentAnnotation]; !strings.Contains(value, by.trace) {
		t.Fatalf("annotation of the ManifestWork = %q, want the trace %s", value, by.trace)
	}
	generation := work.Generation
	framework.Must(f.traced(t, true).WorkV1().ManifestWorks(work.Namespace).Patch(t.Context(), work.Name, types.MergePatchType,
		[]byte(`{"spec":{"deleteOption":{"propagationPolicy":"Orphan"}}}`), metav1.PatchOptions{}))(t)
	framework.Eventually(t, "the controller has restored the ManifestWork without a trace", func(ctx context.Context) error {
		work, err := f.GetWork(ctx, cp)
		if err != nil {
			return err
		}
		if value, set := work.Annotations[workv1.TraceparentAnnotation]; set || work.Generation != generation+2 {
			return fmt.Errorf("annotation = %q at generation %d, want none at generation %d", value, work.Generation, generation+2)
		}
		return nil
	})
}

// settled returns a ManifestWork after the agent has reported its last state.
func (f *fleet) settled(t *testing.T, name string) *workv1.ManifestWork {
	t.Helper()
	var work *workv1.ManifestWork
	framework.Eventually(t, "ManifestWork "+name+" is available", func(ctx context.Context) error {
		var err error
		if work, err = f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, condition := range []string{workv1.WorkApplied, workv1.WorkAvailable} {
			if err := hasCondition(work, condition); err != nil {
				return err
			}
		}
		return nil
	})
	return work
}

func hasCondition(work *workv1.ManifestWork, conditionType string) error {
	for _, condition := range work.Status.Conditions {
		if condition.Type == conditionType && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration == work.Generation {
			return nil
		}
	}
	return fmt.Errorf("conditions = %v, want %s", work.Status.Conditions, conditionType)
}
