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
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// publicWorkAgent sends the requests of the upstream work agent one by one. Its only permissions are
// those of the Role that every accepted cluster has.
type publicWorkAgent struct {
	*fleet
	// works is the client for the ManifestWorks of its own cluster. It uses JSON, because the
	// upstream agent does not use our types.
	works dynamic.ResourceInterface
	// others is the client for the ManifestWorks of another cluster.
	others dynamic.ResourceInterface
}

const otherCluster = "cluster2"

// TestPublicWorkAgent checks that the upstream work agent works with our hub without changes.
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
		"streams ManifestWorks":                              agent.streams,
		"lists and watches ManifestWorks":                    agent.lists,
		"selects ManifestWorks":                              agent.selects,
		"adds and removes its finalizer":                     agent.finalizes,
		"writes the status through the subresource only":     agent.reports,
		"receives conflicts":                                 agent.conflicts,
		"does not change executorChoice":                     agent.executes,
		"cannot change specs with an executor":               agent.leavesSpecs,
		"has no access to other clusters":                    agent.confined,
		"can change specs without an executor":               agent.changesOrdinaryWorks,
		"finished ManifestWorks are deleted after their TTL": agent.finishes,
	} {
		t.Run(name, test)
	}
}

// given creates a ManifestWork as an administrator, and deletes it at the end of the test.
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

// patch changes a ManifestWork like the upstream agent: with a merge patch that contains the uid and
// the resourceVersion of the object that the agent has read.
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

// publicStatus returns a status in the form of the upstream agent.
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

// nextEvent returns the next event, other than a bookmark, for a ManifestWork.
func nextEvent(t *testing.T, events watch.Interface, name string) watch.Event {
	t.Helper()
	patient := time.After(await.Patience)
	for {
		select {
		case event, ok := <-events.ResultChan():
			if !ok {
				t.Fatal("watch ended, want an event")
			}
			if event.Type == watch.Error {
				t.Fatalf("watch = %v, want an event", apierrors.FromObject(event.Object))
			}
			if event.Type != watch.Bookmark && event.Object.(metav1.Object).GetName() == name {
				return event
			}
		case <-patient:
			t.Fatalf("no event for %s, want one", name)
		}
	}
}

// initialEvents reads a stream up to the bookmark that ends the initial events.
func initialEvents(t *testing.T, events watch.Interface) (names []string, version string) {
	t.Helper()
	patient := time.After(await.Patience)
	for {
		select {
		case event, ok := <-events.ResultChan():
			if !ok {
				t.Fatal("watch ended, want a bookmark")
			}
			switch object := event.Object.(type) {
			case *unstructured.Unstructured:
				if event.Type == watch.Added {
					names = append(names, object.GetName())
				} else if event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
					return names, object.GetResourceVersion()
				}
			default:
				t.Fatalf("event = %s %v, want ADDED or BOOKMARK", event.Type, event.Object)
			}
		case <-patient:
			t.Fatalf("no bookmark after %v, want one", names)
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
		t.Errorf("initial events = %v up to resourceVersion %q, want streamed-1, streamed-2 and a resourceVersion", names, version)
	}

	seen := a.given(t, "streamed-3", false)
	if got := nextEvent(t, events, "streamed-3"); got.Type != watch.Added {
		t.Errorf("event of streamed-3 after its creation = %s, want ADDED", got.Type)
	}
	framework.Must(a.patch(t, seen, finalizers(workv1.ManifestWorkFinalizer)))(t)
	if got := nextEvent(t, events, "streamed-3"); got.Type != watch.Modified {
		t.Errorf("event of streamed-3 after a patch = %s, want MODIFIED", got.Type)
	}
	// A client that lost its connection resumes the watch at its last resourceVersion.
	resumed := framework.Must(a.works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}))(t)
	defer resumed.Stop()
	if got := nextEvent(t, resumed, "streamed-3"); got.Type != watch.Added {
		t.Errorf("first event of streamed-3 in the resumed watch = %s, want ADDED", got.Type)
	}
}

func (a *publicWorkAgent) lists(t *testing.T) {
	a.given(t, "listed", false)
	list := framework.Must(a.works.List(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 500}))(t)
	if !slices.ContainsFunc(list.Items, func(work unstructured.Unstructured) bool { return work.GetName() == "listed" }) {
		t.Errorf("list = %d ManifestWorks without the new one, want the new one in it", len(list.Items))
	}
	events := framework.Must(a.works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true}))(t)
	defer events.Stop()
	if err := a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), "listed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := nextEvent(t, events, "listed"); got.Type != watch.Deleted {
		t.Errorf("event of listed after its deletion = %s, want DELETED", got.Type)
	}
}

func (a *publicWorkAgent) selects(t *testing.T) {
	a.given(t, "selected-1", true)
	a.given(t, "selected-2", true)
	for name, options := range map[string]metav1.ListOptions{
		"label":                   {LabelSelector: "given-to=selected-1"},
		"name":                    {FieldSelector: "metadata.name=selected-1"},
		"executor":                {FieldSelector: "spec.executor.subject.serviceAccount.name=selected-1,spec.executor.subject.serviceAccount.namespace=team-a"},
		"label and excluded name": {LabelSelector: "given-to in (selected-1, selected-2)", FieldSelector: "metadata.name!=selected-2"},
	} {
		list := framework.Must(a.works.List(t.Context(), options))(t)
		if len(list.Items) != 1 || list.Items[0].GetName() != "selected-1" {
			t.Errorf("list by %s = %d ManifestWorks, want selected-1 only", name, len(list.Items))
		}
		options.SendInitialEvents, options.ResourceVersionMatch, options.AllowWatchBookmarks = ptr.To(true), metav1.ResourceVersionMatchNotOlderThan, true
		events := framework.Must(a.works.Watch(t.Context(), options))(t)
		if names, _ := initialEvents(t, events); !slices.Equal(names, []string{"selected-1"}) {
			t.Errorf("watch by %s = %v, want selected-1 only", name, names)
		}
		events.Stop()
	}
	if _, err := a.works.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nothing=x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("list by an unsupported field = %v, want BadRequest", err)
	}
}

func (a *publicWorkAgent) finalizes(t *testing.T) {
	seen := a.given(t, "finalized", false)
	held := framework.Must(a.patch(t, seen, finalizers(workv1.ManifestWorkFinalizer)))(t)
	if !slices.Equal(held.GetFinalizers(), []string{workv1.ManifestWorkFinalizer}) || held.GetGeneration() != seen.GetGeneration() {
		t.Errorf("finalizers = %v with generation %d, want %s with generation %d", held.GetFinalizers(), held.GetGeneration(), workv1.ManifestWorkFinalizer, seen.GetGeneration())
	}
	events := framework.Must(a.works.Watch(t.Context(), metav1.ListOptions{ResourceVersion: held.GetResourceVersion()}))(t)
	defer events.Stop()
	if err := a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), "finalized", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	event := nextEvent(t, events, "finalized")
	deleting := event.Object.(*unstructured.Unstructured)
	if event.Type != watch.Modified || deleting.GetDeletionTimestamp() == nil {
		t.Fatalf("event after the delete request = %s with deletionTimestamp %v, want MODIFIED with a deletionTimestamp", event.Type, deleting.GetDeletionTimestamp())
	}
	// The agent still writes the status during the cleanup. Then it removes its finalizer.
	reported := framework.Must(a.patch(t, deleting, map[string]any{"status": publicStatus(deleting.GetGeneration())}, "status"))(t)
	if a.get(t, "finalized").GetDeletionTimestamp() == nil {
		t.Error("deletionTimestamp = nil, want it set")
	}
	if _, err := a.patch(t, reported, finalizers()); err != nil {
		t.Fatal(err)
	}
	for event = nextEvent(t, events, "finalized"); event.Type == watch.Modified; {
		event = nextEvent(t, events, "finalized")
	}
	if event.Type != watch.Deleted {
		t.Errorf("event after the removal of the finalizer = %s, want DELETED", event.Type)
	}
	if _, err := a.works.Get(t.Context(), "finalized", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the removal of the last finalizer = %v, want NotFound", err)
	}
}

func (a *publicWorkAgent) reports(t *testing.T) {
	seen := a.given(t, "reported", false)
	want := publicStatus(seen.GetGeneration())
	reported := framework.Must(a.patch(t, seen, map[string]any{
		"status": want, "spec": map[string]any{"workload": map[string]any{"manifests": []any{}}},
	}, "status"))(t)
	if diff := cmp.Diff(seen.Object["spec"], reported.Object["spec"]); diff != "" || reported.GetGeneration() != seen.GetGeneration() {
		t.Errorf("generation after a status write = %d, want %d; spec (-want +got):\n%s", reported.GetGeneration(), seen.GetGeneration(), diff)
	}
	if diff := cmp.Diff(conditionTypes(t, want), conditionTypes(t, a.get(t, "reported").Object["status"])); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	feedback, _, err := unstructured.NestedSlice(reported.Object, "status", "resourceStatus", "manifests")
	if err != nil || len(feedback) != 1 || feedback[0].(map[string]any)["statusFeedback"] == nil {
		t.Errorf("status of the manifests = %v, error %v, want one manifest with statusFeedback", feedback, err)
	}
	// Writes of the main resource do not change the status.
	changed := framework.Must(a.patch(t, reported, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"seen": "yes"}}, "status": map[string]any{"conditions": []any{}},
	}))(t)
	if diff := cmp.Diff(reported.Object["status"], changed.Object["status"]); diff != "" || changed.GetLabels()["seen"] != "yes" {
		t.Errorf("labels after a write of the main resource = %v, want seen=yes; status (-want +got):\n%s", changed.GetLabels(), diff)
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
		t.Errorf("finalizer with an old resourceVersion = %v, want Conflict", err)
	}
	if _, err := a.patch(t, stale, status, "status"); !apierrors.IsConflict(err) {
		t.Errorf("status with an old resourceVersion = %v, want Conflict", err)
	}
	// The uid is a precondition as well. If it differs, a PUT returns 409, and a patch returns the
	// error of Kubernetes for a changed uid.
	other := fresh.DeepCopy()
	other.SetUID("00000000-0000-0000-0000-000000000000")
	if _, err := a.works.UpdateStatus(t.Context(), other, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("PUT with another uid = %v, want Conflict", err)
	}
	for _, subresources := range [][]string{nil, {"status"}} {
		if _, err := a.patch(t, other, map[string]any{}, subresources...); !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			t.Errorf("patch of %v with another uid = %v, want Conflict or Invalid", subresources, err)
		}
	}
	outdated := stale.DeepCopy()
	outdated.Object["status"] = publicStatus(1)
	if _, err := a.works.UpdateStatus(t.Context(), outdated, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("PUT with an old resourceVersion = %v, want Conflict", err)
	}
	if got := a.get(t, "contested"); got.GetResourceVersion() != fresh.GetResourceVersion() {
		t.Errorf("stored ManifestWork = %v, want it unchanged", got.Object)
	}
	// A ManifestWork that was deleted and recreated has another uid.
	if _, err := a.patch(t, fresh, finalizers()); err != nil {
		t.Fatal(err)
	}
	if err := a.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), "contested", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.patch(t, fresh, finalizers("example.com/lost")); !apierrors.IsNotFound(err) {
		t.Errorf("finalizer of a deleted ManifestWork = %v, want NotFound", err)
	}
	again := a.given(t, "contested", false)
	if _, err := a.patch(t, fresh, finalizers("example.com/lost")); !apierrors.IsConflict(err) {
		t.Errorf("finalizer with the uid of the previous ManifestWork = %v, want Conflict", err)
	}
	if _, err := a.patch(t, fresh, status, "status"); !apierrors.IsConflict(err) {
		t.Errorf("status with the uid of the previous ManifestWork = %v, want Conflict", err)
	}
	if got := a.get(t, "contested"); got.GetResourceVersion() != again.GetResourceVersion() {
		t.Errorf("stored ManifestWork = %v, want it unchanged", got.Object)
	}
}

// executes checks that status writes of an agent without support for executors do not change
// executorChoice.
func (a *publicWorkAgent) executes(t *testing.T) {
	seen := a.given(t, "executed", true)
	choice, there, err := unstructured.NestedMap(seen.Object, "status", "executorChoice")
	if err != nil || !there {
		t.Fatalf("executorChoice = %v, %v, want a user", choice, err)
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
				t.Errorf("executorChoice (-want +got, error %v):\n%s", err, diff)
			}
			if conditionTypes(t, reported.Object["status"]) == nil {
				t.Error("conditions = none, want the reported ones")
			}
		})
	}
	if _, err := a.patch(t, a.get(t, "executed"), finalizers()); err != nil {
		t.Error(err)
	}
}

// leavesSpecs checks that permission to update ManifestWorks does not include permission to change a
// spec with an executor, or to add an executor.
func (a *publicWorkAgent) leavesSpecs(t *testing.T) {
	seen := a.given(t, "guarded", true)
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s = %v, want Forbidden", what, err)
		}
	}
	manifests := []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "mine", "namespace": "kube-system"}}}
	_, err := a.patch(t, seen, map[string]any{"spec": map[string]any{"workload": map[string]any{"manifests": manifests}}})
	refused("patch with other manifests", err)
	_, err = a.patch(t, seen, map[string]any{"spec": map[string]any{"deleteOption": map[string]any{"propagationPolicy": "Orphan"}}})
	refused("patch with another deleteOption", err)
	put := seen.DeepCopy()
	if err := unstructured.SetNestedSlice(put.Object, manifests, "spec", "workload", "manifests"); err != nil {
		t.Fatal(err)
	}
	_, err = a.works.Update(t.Context(), put, metav1.UpdateOptions{})
	refused("PUT with other manifests", err)
	other := map[string]any{"subject": map[string]any{"type": "ServiceAccount", "serviceAccount": map[string]any{"namespace": "team-b", "name": "other"}}}
	_, err = a.patch(t, seen, map[string]any{"spec": map[string]any{"executor": other}})
	refused("patch with another executor", err)
	ordinary := a.given(t, "ordinary", false)
	_, err = a.patch(t, ordinary, map[string]any{"spec": map[string]any{"executor": other}})
	refused("patch that adds an executor", err)
	if got := a.get(t, "guarded"); got.GetResourceVersion() != seen.GetResourceVersion() {
		t.Errorf("stored ManifestWork = %v, want it unchanged", got.Object)
	}
}

func (a *publicWorkAgent) confined(t *testing.T) {
	if _, err := a.others.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list in another cluster namespace = %v, want Forbidden", err)
	}
	if _, err := a.others.Patch(t.Context(), "x", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("patch in another cluster namespace = %v, want Forbidden", err)
	}
	seen := a.given(t, "kept", false)
	if err := a.works.Delete(t.Context(), "kept", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete = %v, want Forbidden", err)
	}
	copied := seen.DeepCopy()
	copied.SetName("made")
	copied.SetUID("")
	copied.SetResourceVersion("")
	if _, err := a.works.Create(t.Context(), copied, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create = %v, want Forbidden", err)
	}
}

// changesOrdinaryWorks checks that the Role of agents still allows changes of ManifestWorks
// without executors.
func (a *publicWorkAgent) changesOrdinaryWorks(t *testing.T) {
	seen := a.given(t, "unguarded", false)
	changed := framework.Must(a.patch(t, seen, map[string]any{"spec": map[string]any{"deleteOption": map[string]any{"propagationPolicy": "Orphan"}}}))(t)
	if policy, _, _ := unstructured.NestedString(changed.Object, "spec", "deleteOption", "propagationPolicy"); policy != "Orphan" || changed.GetGeneration() != seen.GetGeneration()+1 {
		t.Errorf("propagationPolicy = %q with generation %d, want Orphan with generation %d", policy, changed.GetGeneration(), seen.GetGeneration()+1)
	}
	if _, there, _ := unstructured.NestedMap(changed.Object, "status", "executorChoice"); there {
		t.Error("executorChoice is set, want none")
	}
}

// finishes checks that the hub deletes a finished ManifestWork after its TTL, and waits for the
// agent's cleanup as for any deletion.
func (a *publicWorkAgent) finishes(t *testing.T) {
	// The last one to finish is deleted last, which proves that the others are kept.
	for _, name := range []string{"finished-and-kept", "finished-of-a-set", "unfinished", "finished"} {
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
	framework.Eventually(t, "ManifestWork finished has a deletionTimestamp", func(ctx context.Context) (err error) {
		if deleted, err = a.works.Get(ctx, "finished", metav1.GetOptions{}); err == nil && deleted.GetDeletionTimestamp() == nil {
			err = errors.New("deletionTimestamp = nil")
		}
		return err
	})
	if _, err := a.patch(t, deleted, finalizers()); err != nil {
		t.Error(err)
	}
	if _, err := a.works.Get(t.Context(), "finished", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after the TTL = %v, want NotFound", err)
	}
	for _, name := range []string{"finished-and-kept", "finished-of-a-set", "unfinished"} {
		if kept := a.get(t, name); kept.GetDeletionTimestamp() != nil {
			t.Errorf("deletionTimestamp of ManifestWork %s is set, want nil", name)
		}
	}
}
