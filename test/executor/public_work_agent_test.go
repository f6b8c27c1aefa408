package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// publicWorkAgent makes the requests that the public work agent makes, one by one,
// with nothing but the Role that every accepted cluster has.
type publicWorkAgent struct {
	*fleet
	// works are those of its own cluster, as JSON: it knows none of our types.
	works dynamic.ResourceInterface
	// others are the works of another cluster.
	others dynamic.ResourceInterface
}

const otherCluster = "cluster2"

// The public work agent works with our hub unchanged.
func TestPublicWorkAgent(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{})
	for _, name := range []string{framework.Cluster1, otherCluster} {
		if err := localhub.JoinCluster(t.Context(), f.Hub, name); err != nil {
			t.Fatal(err)
		}
	}
	config := framework.Must(f.Hub.UserConfig(localhub.AgentUser(framework.Cluster1), localhub.AgentGroup(framework.Cluster1)))(t)
	works := framework.Must(dynamic.NewForConfig(config))(t).Resource(workv1.SchemeGroupVersion.WithResource("manifestworks"))
	agent := &publicWorkAgent{fleet: f, works: works.Namespace(framework.Cluster1), others: works.Namespace(otherCluster)}
	for name, test := range map[string]func(*testing.T){
		"streams its works":               agent.streams,
		"lists and watches":               agent.lists,
		"selects":                         agent.selects,
		"puts its finalizer on and off":   agent.finalizes,
		"reports in the status only":      agent.reports,
		"is told of conflicts":            agent.conflicts,
		"serves a work with an executor":  agent.executes,
		"does not change executed specs":  agent.leavesSpecs,
		"is confined to its own cluster":  agent.confined,
		"changes works without executors": agent.changesOrdinaryWorks,
		"finishes works":                  agent.finishes,
	} {
		t.Run(name, test)
	}
}

// given creates a work as an administrator, and removes it at the end of the test.
func (a *publicWorkAgent) given(t *testing.T, name string, executor bool) *unstructured.Unstructured {
	t.Helper()
	work := framework.ConfigMapWork(name)
	work.Labels = map[string]string{"given-to": name}
	if executor {
		work.Spec.Executor = executorOf(types.NamespacedName{Namespace: "team-a", Name: name})
	}
	framework.Must(a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Create(t.Context(), work, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		ctx, works := context.WithoutCancel(t.Context()), a.OCM.WorkV1().ManifestWorks(framework.Cluster1)
		_, err := works.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err == nil {
			err = works.Delete(ctx, name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return a.get(t, name)
}

func (a *publicWorkAgent) get(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return framework.Must(a.works.Get(t.Context(), name, metav1.GetOptions{}))(t)
}

// patch changes a work as the public agent does everything: by a merge patch that holds
// for the version that it has seen.
func (a *publicWorkAgent) patch(t *testing.T, seen *unstructured.Unstructured, change map[string]any, subresources ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"], metadata["resourceVersion"] = string(seen.GetUID()), seen.GetResourceVersion()
	change["metadata"] = metadata
	body := framework.Must(json.Marshal(change))(t)
	return a.works.Patch(t.Context(), seen.GetName(), types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
}

func finalizers(list ...any) map[string]any {
	return map[string]any{"metadata": map[string]any{"finalizers": list}}
}

// publicStatus is a status as the public agent reports it.
func publicStatus(generation int64) map[string]any {
	condition := func(kind, reason string) map[string]any {
		return map[string]any{
			"type": kind, "status": "True", "reason": reason, "message": "", "observedGeneration": generation,
			"lastTransitionTime": time.Unix(1_700_000_000, 0).UTC().Format(time.RFC3339),
		}
	}
	return map[string]any{
		"conditions": []any{condition("Applied", "AppliedManifestWorkComplete"), condition("Available", "ResourcesAvailable")},
		"resourceStatus": map[string]any{"manifests": []any{map[string]any{
			"resourceMeta": map[string]any{"ordinal": int64(0), "group": "", "version": "v1", "kind": "ConfigMap", "resource": "configmaps", "name": "c", "namespace": "default"},
			"statusFeedback": map[string]any{"values": []any{
				map[string]any{"name": "phase", "fieldValue": map[string]any{"type": "String", "string": "Bound"}},
			}},
			"conditions": []any{condition("Applied", "AppliedManifestComplete"), condition("StatusFeedbackSynced", "NoStatusFeedbackSynced")},
		}}},
	}
}

// nextEvent returns the next event about a work of a name that is no bookmark.
func nextEvent(t *testing.T, events watch.Interface, name string) watch.Event {
	t.Helper()
	patient := time.After(framework.Patience)
	for {
		select {
		case event, ok := <-events.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			if event.Type == watch.Error {
				t.Fatalf("the watch failed: %v", apierrors.FromObject(event.Object))
			}
			if event.Type != watch.Bookmark && event.Object.(metav1.Object).GetName() == name {
				return event
			}
		case <-patient:
			t.Fatalf("no event about %s", name)
		}
	}
}

// initialEvents reads a stream up to the bookmark that ends what there was before it.
func initialEvents(t *testing.T, events watch.Interface) (names []string, version string) {
	t.Helper()
	patient := time.After(framework.Patience)
	for {
		select {
		case event, ok := <-events.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			switch object := event.Object.(type) {
			case *unstructured.Unstructured:
				if event.Type == watch.Added {
					names = append(names, object.GetName())
				} else if event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
					return names, object.GetResourceVersion()
				}
			default:
				t.Fatalf("got %s %v", event.Type, event.Object)
			}
		case <-patient:
			t.Fatalf("no bookmark after %v", names)
		}
	}
}

func streamOptions() metav1.ListOptions {
	return metav1.ListOptions{
		SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	}
}

func (a *publicWorkAgent) streams(t *testing.T) {
	a.given(t, "streamed-1", false)
	a.given(t, "streamed-2", true)
	events := framework.Must(a.works.Watch(t.Context(), streamOptions()))(t)
	defer events.Stop()
	names, version := initialEvents(t, events)
	if slices.Sort(names); !slices.Contains(names, "streamed-1") || !slices.Contains(names, "streamed-2") || version == "" {
		t.Errorf("the stream begins with %v and ends in version %q", names, version)
	}

	seen := a.given(t, "streamed-3", false)
	if got := nextEvent(t, events, "streamed-3"); got.Type != watch.Added {
		t.Errorf("got %s", got.Type)
	}
	framework.Must(a.patch(t, seen, finalizers(workv1.ManifestWorkFinalizer)))(t)
	if got := nextEvent(t, events, "streamed-3"); got.Type != watch.Modified {
		t.Errorf("got %s", got.Type)
	}
	// Whoever was cut off goes on where it was.
	resumed := framework.Must(a.works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}))(t)
	defer resumed.Stop()
	if got := nextEvent(t, resumed, "streamed-3"); got.Type != watch.Added {
		t.Errorf("after the end of the first stream came %s", got.Type)
	}
}

func (a *publicWorkAgent) lists(t *testing.T) {
	a.given(t, "listed", false)
	list := framework.Must(a.works.List(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 500}))(t)
	if !slices.ContainsFunc(list.Items, func(work unstructured.Unstructured) bool { return work.GetName() == "listed" }) {
		t.Errorf("%d works, the new one is not among them", len(list.Items))
	}
	events := framework.Must(a.works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true}))(t)
	defer events.Stop()
	if err := a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), "listed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := nextEvent(t, events, "listed"); got.Type != watch.Deleted {
		t.Errorf("got %s", got.Type)
	}
}

func (a *publicWorkAgent) selects(t *testing.T) {
	a.given(t, "selected-1", true)
	a.given(t, "selected-2", true)
	for name, options := range map[string]metav1.ListOptions{
		"label":             {LabelSelector: "given-to=selected-1"},
		"name":              {FieldSelector: "metadata.name=selected-1"},
		"executor":          {FieldSelector: "spec.executor.subject.serviceAccount.name=selected-1,spec.executor.subject.serviceAccount.namespace=team-a"},
		"label, not a name": {LabelSelector: "given-to in (selected-1, selected-2)", FieldSelector: "metadata.name!=selected-2"},
	} {
		list := framework.Must(a.works.List(t.Context(), options))(t)
		if len(list.Items) != 1 || list.Items[0].GetName() != "selected-1" {
			t.Errorf("by %s: %d works", name, len(list.Items))
		}
		options.SendInitialEvents, options.ResourceVersionMatch, options.AllowWatchBookmarks = ptr.To(true), metav1.ResourceVersionMatchNotOlderThan, true
		events := framework.Must(a.works.Watch(t.Context(), options))(t)
		if names, _ := initialEvents(t, events); !slices.Equal(names, []string{"selected-1"}) {
			t.Errorf("by %s: streamed %v", name, names)
		}
		events.Stop()
	}
	if _, err := a.works.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nothing=x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("by a field that is none: %v", err)
	}
}

func (a *publicWorkAgent) finalizes(t *testing.T) {
	seen := a.given(t, "finalized", false)
	held := framework.Must(a.patch(t, seen, finalizers(workv1.ManifestWorkFinalizer)))(t)
	if !slices.Equal(held.GetFinalizers(), []string{workv1.ManifestWorkFinalizer}) || held.GetGeneration() != seen.GetGeneration() {
		t.Errorf("finalizers %v, generation %d after %d", held.GetFinalizers(), held.GetGeneration(), seen.GetGeneration())
	}
	events := framework.Must(a.works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: held.GetResourceVersion()}))(t)
	defer events.Stop()
	if err := a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), "finalized", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	event := nextEvent(t, events, "finalized")
	deleting := event.Object.(*unstructured.Unstructured)
	if event.Type != watch.Modified || deleting.GetDeletionTimestamp() == nil {
		t.Fatalf("got %s of a work deleted at %v", event.Type, deleting.GetDeletionTimestamp())
	}
	// It still reports while it cleans up, and only then lets the work go.
	reported := framework.Must(a.patch(t, deleting, map[string]any{"status": publicStatus(deleting.GetGeneration())}, "status"))(t)
	if a.get(t, "finalized").GetDeletionTimestamp() == nil {
		t.Error("the work is not being deleted any more")
	}
	if _, err := a.patch(t, reported, finalizers()); err != nil {
		t.Fatal(err)
	}
	for event = nextEvent(t, events, "finalized"); event.Type == watch.Modified; {
		event = nextEvent(t, events, "finalized")
	}
	if event.Type != watch.Deleted {
		t.Errorf("got %s", event.Type)
	}
	if _, err := a.works.Get(t.Context(), "finalized", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the work is still there: %v", err)
	}
}

func (a *publicWorkAgent) reports(t *testing.T) {
	seen := a.given(t, "reported", false)
	want := publicStatus(seen.GetGeneration())
	reported := framework.Must(a.patch(t, seen, map[string]any{
		"status": want, "spec": map[string]any{"workload": map[string]any{"manifests": []any{}}},
	}, "status"))(t)
	if diff := cmp.Diff(seen.Object["spec"], reported.Object["spec"]); diff != "" || reported.GetGeneration() != seen.GetGeneration() {
		t.Errorf("a status changed the spec, generation %d: %s", reported.GetGeneration(), diff)
	}
	if diff := cmp.Diff(conditionTypes(t, want), conditionTypes(t, a.get(t, "reported").Object["status"])); diff != "" {
		t.Error(diff)
	}
	feedback, _, err := unstructured.NestedSlice(reported.Object, "status", "resourceStatus", "manifests")
	if err != nil || len(feedback) != 1 || feedback[0].(map[string]any)["statusFeedback"] == nil {
		t.Errorf("what it reported of the manifests: %v, %v", feedback, err)
	}
	// The work itself does not take a status.
	changed := framework.Must(a.patch(t, reported, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"seen": "yes"}}, "status": map[string]any{"conditions": []any{}},
	}))(t)
	if diff := cmp.Diff(reported.Object["status"], changed.Object["status"]); diff != "" || changed.GetLabels()["seen"] != "yes" {
		t.Errorf("labels %v, status: %s", changed.GetLabels(), diff)
	}
}

// conditionTypes returns the types and reasons of the conditions in a status.
func conditionTypes(t *testing.T, status any) []string {
	t.Helper()
	conditions, _, err := unstructured.NestedSlice(status.(map[string]any), "conditions")
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, condition := range conditions {
		condition := condition.(map[string]any)
		types = append(types, fmt.Sprintf("%s: %s", condition["type"], condition["reason"]))
	}
	return types
}

func (a *publicWorkAgent) conflicts(t *testing.T) {
	stale := a.given(t, "contested", false)
	fresh := framework.Must(a.patch(t, stale, finalizers(workv1.ManifestWorkFinalizer)))(t)
	status := map[string]any{"status": publicStatus(1)}
	if _, err := a.patch(t, stale, finalizers("example.com/lost")); !apierrors.IsConflict(err) {
		t.Errorf("a finalizer for a former version: %v", err)
	}
	if _, err := a.patch(t, stale, status, "status"); !apierrors.IsConflict(err) {
		t.Errorf("a status for a former version: %v", err)
	}
	// The uid holds as well. A PUT says 409, a patch what Kubernetes says to one that
	// changes nothing but the uid.
	other := fresh.DeepCopy()
	other.SetUID("00000000-0000-0000-0000-000000000000")
	if _, err := a.works.UpdateStatus(t.Context(), other, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a PUT for another work of the name: %v", err)
	}
	for _, subresources := range [][]string{nil, {"status"}} {
		if _, err := a.patch(t, other, map[string]any{}, subresources...); !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Errorf("a patch of %v for another work of the name: %v", subresources, err)
		}
	}
	outdated := stale.DeepCopy()
	outdated.Object["status"] = publicStatus(1)
	if _, err := a.works.UpdateStatus(t.Context(), outdated, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a PUT of a former version: %v", err)
	}
	if got := a.get(t, "contested"); got.GetResourceVersion() != fresh.GetResourceVersion() {
		t.Errorf("written: %v", got.Object)
	}
	// A work that was deleted and made again is not the one that was seen.
	if _, err := a.patch(t, fresh, finalizers()); err != nil {
		t.Fatal(err)
	}
	if err := a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), "contested", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.patch(t, fresh, finalizers("example.com/lost")); !apierrors.IsNotFound(err) {
		t.Errorf("a finalizer for a work that is gone: %v", err)
	}
	again := a.given(t, "contested", false)
	if _, err := a.patch(t, fresh, finalizers("example.com/lost")); !apierrors.IsConflict(err) {
		t.Errorf("a finalizer for the former work of the name: %v", err)
	}
	if _, err := a.patch(t, fresh, status, "status"); !apierrors.IsConflict(err) {
		t.Errorf("a status for the former work of the name: %v", err)
	}
	if got := a.get(t, "contested"); got.GetResourceVersion() != again.GetResourceVersion() {
		t.Errorf("written: %v", got.Object)
	}
}

// executes: an agent that knows nothing of executors, or of who chose one, does not
// change that by serving the work.
func (a *publicWorkAgent) executes(t *testing.T) {
	seen := a.given(t, "executed", true)
	choice, there, err := unstructured.NestedMap(seen.Object, "status", "executorChoice")
	if err != nil || !there {
		t.Fatalf("who chose the executor: %v, %v", choice, err)
	}
	held := framework.Must(a.patch(t, seen, finalizers(workv1.ManifestWorkFinalizer)))(t)
	forged := publicStatus(held.GetGeneration())
	forged["executorChoice"] = map[string]any{"chosenBy": map[string]any{"username": "mallory"}}
	erased := publicStatus(held.GetGeneration())
	erased["executorChoice"] = nil
	for name, write := range map[string]func(seen *unstructured.Unstructured) (*unstructured.Unstructured, error){
		"patch": func(seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return a.patch(t, seen, map[string]any{"status": publicStatus(seen.GetGeneration())}, "status")
		},
		"patch with another choice": func(seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return a.patch(t, seen, map[string]any{"status": forged}, "status")
		},
		"patch without a choice": func(seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return a.patch(t, seen, map[string]any{"status": erased}, "status")
		},
		"PUT": func(seen *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			full := seen.DeepCopy()
			full.Object["status"] = publicStatus(seen.GetGeneration())
			return a.works.UpdateStatus(t.Context(), full, metav1.UpdateOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			reported := framework.Must(write(a.get(t, "executed")))(t)
			got, _, err := unstructured.NestedMap(reported.Object, "status", "executorChoice")
			if diff := cmp.Diff(choice, got); err != nil || diff != "" {
				t.Errorf("who chose the executor is now %v: %s", err, diff)
			}
			if conditionTypes(t, reported.Object["status"]) == nil {
				t.Error("nothing is reported")
			}
		})
	}
	if _, err := a.patch(t, a.get(t, "executed"), finalizers()); err != nil {
		t.Error(err)
	}
}

// leavesSpecs: who may update works may not thereby act as their executors.
func (a *publicWorkAgent) leavesSpecs(t *testing.T) {
	seen := a.given(t, "guarded", true)
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	manifests := []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "mine", "namespace": "kube-system"}}}
	_, err := a.patch(t, seen, map[string]any{"spec": map[string]any{"workload": map[string]any{"manifests": manifests}}})
	refused("other manifests", err)
	_, err = a.patch(t, seen, map[string]any{"spec": map[string]any{"deleteOption": map[string]any{"propagationPolicy": "Orphan"}}})
	refused("another delete option", err)
	put := seen.DeepCopy()
	if err := unstructured.SetNestedSlice(put.Object, manifests, "spec", "workload", "manifests"); err != nil {
		t.Fatal(err)
	}
	_, err = a.works.Update(t.Context(), put, metav1.UpdateOptions{})
	refused("a PUT of other manifests", err)
	other := map[string]any{"subject": map[string]any{"type": "ServiceAccount", "serviceAccount": map[string]any{"namespace": "team-b", "name": "other"}}}
	_, err = a.patch(t, seen, map[string]any{"spec": map[string]any{"executor": other}})
	refused("another executor", err)
	ordinary := a.given(t, "ordinary", false)
	_, err = a.patch(t, ordinary, map[string]any{"spec": map[string]any{"executor": other}})
	refused("an executor for a work that has none", err)
	if got := a.get(t, "guarded"); got.GetResourceVersion() != seen.GetResourceVersion() {
		t.Errorf("written: %v", got.Object)
	}
}

func (a *publicWorkAgent) confined(t *testing.T) {
	if _, err := a.others.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing those of another cluster: %v", err)
	}
	if _, err := a.others.Patch(t.Context(), "x", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("changing one of another cluster: %v", err)
	}
	seen := a.given(t, "kept", false)
	if err := a.works.Delete(t.Context(), "kept", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting one: %v", err)
	}
	copied := seen.DeepCopy()
	copied.SetName("made")
	copied.SetUID("")
	copied.SetResourceVersion("")
	if _, err := a.works.Create(t.Context(), copied, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("making one: %v", err)
	}
}

// changesOrdinaryWorks: what the Role of agents lets them do to works without
// executors is as it was.
func (a *publicWorkAgent) changesOrdinaryWorks(t *testing.T) {
	seen := a.given(t, "unguarded", false)
	changed := framework.Must(a.patch(t, seen, map[string]any{"spec": map[string]any{"deleteOption": map[string]any{"propagationPolicy": "Orphan"}}}))(t)
	if policy, _, _ := unstructured.NestedString(changed.Object, "spec", "deleteOption", "propagationPolicy"); policy != "Orphan" || changed.GetGeneration() != seen.GetGeneration()+1 {
		t.Errorf("policy %q, generation %d", policy, changed.GetGeneration())
	}
	if _, there, _ := unstructured.NestedMap(changed.Object, "status", "executorChoice"); there {
		t.Error("somebody is said to have chosen an executor")
	}
}

// finishes: the hub deletes a finished work when its time has come, and waits for the
// agent to clean up as for any other deletion.
func (a *publicWorkAgent) finishes(t *testing.T) {
	for _, name := range []string{"finished", "finished-and-kept", "finished-of-a-set", "unfinished"} {
		a.given(t, name, false)
		if name != "finished-and-kept" {
			framework.Must(a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Patch(t.Context(), name, types.MergePatchType,
				[]byte(`{"spec":{"deleteOption":{"ttlSecondsAfterFinished":1}}}`), metav1.PatchOptions{}))(t)
		}
		if name == "finished-of-a-set" {
			framework.Must(a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Patch(t.Context(), name, types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"work.open-cluster-management.io/manifestworkreplicaset":"default.set"}}}`), metav1.PatchOptions{}))(t)
		}
		seen := framework.Must(a.patch(t, a.get(t, name), finalizers(workv1.ManifestWorkFinalizer)))(t)
		status := publicStatus(seen.GetGeneration())
		complete := map[string]any{
			"type": "Complete", "status": "True", "reason": "ConditionRulesAggregated", "message": "", "observedGeneration": seen.GetGeneration(),
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}
		if name == "unfinished" {
			complete["status"] = "False"
		}
		status["conditions"] = append(status["conditions"].([]any), complete)
		framework.Must(a.patch(t, seen, map[string]any{"status": status}, "status"))(t)
	}
	var deleted *unstructured.Unstructured
	framework.Eventually(t, "the finished work is being deleted", func(ctx context.Context) (err error) {
		if deleted, err = a.works.Get(ctx, "finished", metav1.GetOptions{}); err == nil && deleted.GetDeletionTimestamp() == nil {
			err = errors.New("it is not")
		}
		return err
	})
	if _, err := a.patch(t, deleted, finalizers()); err != nil {
		t.Error(err)
	}
	if _, err := a.works.Get(t.Context(), "finished", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	for _, name := range []string{"finished-and-kept", "finished-of-a-set", "unfinished"} {
		if kept := a.get(t, name); kept.GetDeletionTimestamp() != nil {
			t.Errorf("%s is being deleted", name)
		}
	}
}
