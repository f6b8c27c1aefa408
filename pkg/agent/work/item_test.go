package work

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
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work/apply"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/status"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// configMap returns a ConfigMap with a value.
func configMap(value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "n", "name": "a"}, "data": map[string]any{"a": value},
	}}
}

// itemPass returns a pass over one manifest, and the manifest. st is the state of its ManifestWork.
func itemPass(client *dynamicfake.FakeDynamicClient, st *workState, now time.Time) (*pass, *decide.Item) {
	manifest := configMap("manifest")
	it := &decide.Item{GVK: manifest.GroupVersionKind(), GVR: configMaps, Namespace: "n", Name: "a", Object: manifest, Hash: "h"}
	it.Config.Strategy.Type = workv1.UpdateStrategyTypeUpdate
	c := &Controller{now: func() time.Time { return now }, watches: newObjectWatches(nil, nil), evaluator: decide.NewEvaluator(decide.FeedbackPaths{})}
	st.round++
	return &pass{
		Controller: c, st: st, work: &workv1.ManifestWork{}, items: []*decide.Item{it}, started: now, budget: bounded.NewBudget(),
		record: &workv1.AppliedManifestWork{}, uids: map[decide.ObjectID]types.UID{}, results: make([]status.Result, 1),
		applier: &apply.Applier{
			Client: client, Owner: metav1.OwnerReference{UID: "record"}, Manager: "work-agent-1", Now: c.now,
			MayWrite: func(context.Context) error { return nil },
			Held:     func(decide.ObjectID, *unstructured.Unstructured) bool { return false },
		},
	}, it
}

// TestRefusalStaysWhileRepairsAreHeldBack checks that a manifest that the cluster refuses is reported as not applied while it is
// refused, also if other writers have changed the object so often that the agent delays its writes.
func TestRefusalStaysWhileRepairsAreHeldBack(t *testing.T) {
	refusal, changed := apierrors.NewForbidden(configMaps.GroupResource(), "a", errors.New("denied by a webhook")), configMap("other")
	client, refused := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), changed), false
	client.PrependReactor("update", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return refused, nil, refusal })
	now, st := time.Unix(1000, 0), &workState{items: map[decide.ObjectID]*itemState{}}
	pass := func() error {
		now = now.Add(200 * time.Millisecond)
		p, it := itemPass(client, st, now)
		p.applyItem(t.Context(), it)
		return p.results[0].Err
	}
	// The first pass applies the object, and each following one undoes the change of another writer.
	for i := range 10 {
		if err := pass(); err != nil {
			t.Fatalf("pass %d: error of the manifest = %v, want nil", i, err)
		}
		if _, err := client.Resource(configMaps).Namespace("n").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	refused = true
	for i := range 50 {
		if err := pass(); err == nil && i > 10 || err != nil && !errors.Is(err, refusal) {
			t.Fatalf("pass %d after the cluster refuses the manifest: error = %v, want %v", i, err, refusal)
		}
	}
	refused = false
	for range 5 * 60 {
		if pass() == nil {
			return
		}
	}
	t.Error("the manifest is not applied a minute after the cluster accepts it again")
}

// TestCompleteObjectThatCannotBeRead checks that the conditions of a complete object stay while the cluster does not respond.
func TestCompleteObjectThatCannotBeRead(t *testing.T) {
	unavailable, unreachable := apierrors.NewServiceUnavailable("starting"), errors.New("connection refused")
	for _, test := range []struct{ unreachable, want error }{{nil, unavailable}, {unreachable, unreachable}} {
		client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), configMap("manifest"))
		client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, unavailable })
		p, it := itemPass(client, &workState{items: map[decide.ObjectID]*itemState{}}, time.Now())
		p.frozen, p.unreachable = true, test.unreachable
		p.applyItem(t.Context(), it)
		got := p.results[0]
		if !got.Frozen || !got.Keep || got.Presence != status.Unknown || !errors.Is(got.Err, test.want) || !errors.Is(p.failed, test.want) {
			t.Errorf("result of an object that cannot be read: %v = %+v (%v), want frozen, kept and retried", test.want, got, p.failed)
		}
	}
}
