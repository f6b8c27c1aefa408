package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	bindings   = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
)

// appliedTask returns the task of a manifest that was applied, with an object that another writer has changed.
func appliedTask(gvr schema.GroupVersionResource, kind, field string, wanted, live any) (*Task, *unstructured.Unstructured) {
	object := func(value any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"namespace": "n", "name": "a"}, field: value,
		}}
	}
	manifest := object(wanted)
	return &Task{
		Item:  &decide.Item{GVK: manifest.GroupVersionKind(), GVR: gvr, Namespace: "n", Name: "a", Object: manifest, Hash: "h"},
		State: &State{Applied: true}, Complete: func(*unstructured.Unstructured) bool { return false },
	}, object(live)
}

func testApplier(client *dynamicfake.FakeDynamicClient, now func() time.Time) *Applier {
	return &Applier{
		Client: client, Owner: metav1.OwnerReference{UID: "record"}, Manager: "work-agent-1", Now: now,
		MayWrite: func(context.Context) error { return nil },
		Held:     func(decide.ObjectID, *unstructured.Unstructured) bool { return false },
	}
}

// TestRefusedWritesAreNotRepairs checks that writes that the cluster refuses delay no other write, and that no metric counts them:
// they undo no change, and have a backoff of their own.
func TestRefusedWritesAreNotRepairs(t *testing.T) {
	for strategy, refusal := range map[workv1.UpdateStrategyType]error{
		workv1.UpdateStrategyTypeServerSideApply: apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}, "conflict with \"other\""),
		workv1.UpdateStrategyTypeUpdate:          apierrors.NewForbidden(configMaps.GroupResource(), "a", errors.New("denied by a webhook")),
	} {
		task, live := appliedTask(configMaps, "ConfigMap", "data", map[string]any{"a": "manifest"}, map[string]any{"a": "other"})
		task.Config.Strategy.Type = strategy
		client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), live)
		for _, verb := range []string{"patch", "update"} {
			client.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		}
		before, err := testutil.GetCounterMetricValue(driftRepairs)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1000, 0)
		a := testApplier(client, func() time.Time { return now })
		for i := range 3 * freeRepairs {
			if _, err := a.Apply(t.Context(), task); !errors.Is(err, refusal) {
				t.Errorf("%s: Apply() %d = %v, want %v", strategy, i, err, refusal)
			}
			now = now.Add(100 * time.Millisecond)
		}
		if after, err := testutil.GetCounterMetricValue(driftRepairs); err != nil || after != before {
			t.Errorf("%s: repairs after refused writes = %v (%v), want %v", strategy, after, err, before)
		}
	}
}

// TestRepairOfRoleRef checks that a binding that is deleted to change its role is created again at once, and counts as one repair.
func TestRepairOfRoleRef(t *testing.T) {
	task, live := appliedTask(bindings, "RoleBinding", "roleRef", map[string]any{"name": "manifest"}, map[string]any{"name": "other"})
	task.Config.Strategy.Type = workv1.UpdateStrategyTypeUpdate
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), live)
	now := time.Unix(1000, 0)
	a := testApplier(client, func() time.Time { return now })
	objects := client.Resource(bindings).Namespace("n")
	for i := range freeRepairs + 1 {
		if _, err := a.Apply(t.Context(), task); err != nil {
			t.Fatalf("Apply() %d = %v, want nil", i, err)
		}
		if _, err := objects.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Fatalf("the binding after Apply() %d: %v, want it to exist", i, err)
		}
		if _, err := objects.Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if task.State.repairs != freeRepairs+1 {
		t.Errorf("repairs = %d, want %d", task.State.repairs, freeRepairs+1)
	}
}
