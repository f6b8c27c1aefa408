package search

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// objectNames returns the sorted names of FleetResources.
func objectNames(items []searchv1alpha1.FleetResource) []string {
	out := []string{}
	for _, item := range items {
		out = append(out, item.Name)
	}
	slices.Sort(out)
	return out
}

func TestFleetResourcesAreSelected(t *testing.T) { onShared(t, fleetResourcesAreSelected) }

func fleetResourcesAreSelected(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	a, b, job, bare := "pod.payments.web-1-a", "pod.payments.web-1-b", "pod.default.job-x", "pod.default.bare"
	for what, test := range map[string]struct {
		labels, fields string
		want           []string
	}{
		"a kind":                         {"", "kind=Pod", []string{a, b, job, bare}},
		"a property that differs":        {"", "kind=Pod,status!=Running", []string{b, job, bare}},
		"the name on the cluster":        {"", "name=web", []string{"deployment.payments.web"}},
		"the namespace on the cluster":   {"", "kind=Pod,namespace=payments", []string{a, b}},
		"a number":                       {"", "restarts=10", []string{b}},
		"an element of a list":           {"", "image=envoy:2", []string{a}},
		"a value is not a pattern":       {"", "kind=P*", nil},
		"metadata.name":                  {"", "metadata.name=" + job, []string{job}},
		"metadata.name of no resource":   {"", "metadata.name=nothing", nil},
		"metadata.name and another kind": {"", "metadata.name=" + job + ",kind=Node", nil},
		"metadata.namespace":             {"", "metadata.namespace=" + s.seen.name + ",kind=Node", []string{"node.node-1"}},
		"another cluster":                {"", "metadata.namespace=" + s.hidden.name, nil},
		"a label":                        {"app=web", "kind=Pod", []string{a, b}},
		"a label and a field":            {"app=web", "kind=Pod,status=Running", []string{a}},
		"a label that differs":           {"app!=web", "kind=Pod", []string{job, bare}},
		"one of several values":          {"app in (web, job)", "kind=Pod", []string{a, b, job}},
		"none of several values":         {"app notin (web, other)", "kind=Pod", []string{job, bare}},
		"a label that exists":            {"tier", "", []string{a}},
		"a label that does not exist":    {"!app", "kind=Pod", []string{bare}},
		"several labels":                 {"app=web,!tier", "kind=Pod", []string{b}},
		"two values of one label":        {"app=web,app=job", "", nil},
		"Secrets of managed clusters":    {"", "kind=Secret", nil},
		"a Secret by name":               {"", "metadata.name=secret.default.top", nil},
	} {
		t.Run(what, func(t *testing.T) {
			options := metav1.ListOptions{LabelSelector: test.labels, FieldSelector: test.fields}
			want := slices.Sorted(slices.Values(test.want))
			for _, namespace := range []string{metav1.NamespaceAll, s.seen.name} {
				list := framework.Must(s.viewer.OCM.SearchV1alpha1().FleetResources(namespace).List(t.Context(), options))(t)
				if got := objectNames(list.Items); !slices.Equal(got, want) {
					t.Errorf("FleetResources in namespace %q = %v, want %v", namespace, got, want)
				}
			}
		})
	}
}

func TestFleetResourcesAreObjects(t *testing.T) { onShared(t, fleetResourcesAreObjects) }

func fleetResourcesAreObjects(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	ctx, objects := t.Context(), s.viewer.OCM.SearchV1alpha1().FleetResources(s.seen.name)
	web := framework.Must(objects.Get(ctx, "deployment.payments.web", metav1.GetOptions{}))(t)
	want := searchv1alpha1.ResourceIdentity{APIGroup: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "payments", Name: "web"}
	if web.Resource != want || web.Labels["app"] != "web" || web.Namespace != s.seen.name || web.CreationTimestamp.UTC().Format(time.RFC3339) != "2020-02-02T02:02:02Z" ||
		!strings.Contains(string(web.Properties.Raw), `"desired":3`) || web.ResourceVersion == "" || web.UID == "" {
		t.Errorf("FleetResource = %+v with properties %s, want %+v in namespace %s with label, creation time and properties", web, web.Properties.Raw, want, s.seen.name)
	}
	if _, err := objects.Get(ctx, "nothing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of a missing resource: error = %v, want 404", err)
	}
	// For resources outside of the caller's scope, the server returns 404 too.
	if _, err := objects.Get(ctx, "secret.default.top", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of a Secret: error = %v, want 404", err)
	}
	if _, err := s.OCM.SearchV1alpha1().FleetResources(s.seen.name).Get(ctx, "secret.default.top", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of a Secret as administrator: error = %v, want 404", err)
	}
	if _, err := s.viewer.OCM.SearchV1alpha1().FleetResources(s.hidden.name).Get(ctx, "node.node-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get without permission to view the cluster: error = %v, want 404", err)
	}
	if _, err := objects.List(ctx, metav1.ListOptions{LabelSelector: "release>3"}); !apierrors.IsBadRequest(err) {
		t.Errorf("list with an unsupported operator: error = %v, want 400", err)
	}
}

func TestFleetResourcesInChunks(t *testing.T) { onShared(t, fleetResourcesInChunks) }

func fleetResourcesInChunks(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	ctx, objects := t.Context(), s.viewer.OCM.SearchV1alpha1().FleetResources(metav1.NamespaceAll)
	options := metav1.ListOptions{Limit: 3}
	var got []string
	for pages := 1; ; pages++ {
		list := framework.Must(objects.List(ctx, options))(t)
		got = append(got, objectNames(list.Items)...)
		if pages == 1 && (len(list.Items) != 3 || ptr.Deref(list.RemainingItemCount, -1) != 6) {
			t.Errorf("first chunk = %d items, %d remaining, want 3 and 6", len(list.Items), ptr.Deref(list.RemainingItemCount, -1))
		}
		if options.Continue = list.Continue; list.Continue == "" {
			break
		}
	}
	slices.Sort(got)
	if want := objectNames(framework.Must(objects.List(ctx, metav1.ListOptions{}))(t).Items); !slices.Equal(got, want) || len(got) != 9 {
		t.Errorf("names in chunks = %v, want the 9 names of one list %v", got, want)
	}
}

func TestFleetResourceVersions(t *testing.T) { onShared(t, fleetResourceVersions) }

func fleetResourceVersions(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	ctx, objects := t.Context(), s.viewer.OCM.SearchV1alpha1().FleetResources(s.seen.name)
	first := framework.Must(objects.List(ctx, metav1.ListOptions{}))(t)
	version := framework.Must(strconv.ParseUint(first.ResourceVersion, 10, 64))(t)
	s.seen.changes(t, inventory.Sync{AddResources: []inventory.Resource{s.seen.resource("ConfigMap", "default", "later", nil)}})
	later := framework.Must(objects.List(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}))(t)
	if now := framework.Must(strconv.ParseUint(later.ResourceVersion, 10, 64))(t); now <= version || len(later.Items) != len(first.Items)+1 {
		t.Errorf("%[2]d items at version %[1]d, then %[4]d at version %[3]d, want one more at a later version", version, len(first.Items), now, len(later.Items))
	}
	if _, err := objects.List(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Errorf("list of an old exact version: error = %v, want Expired", err)
	}
	// The response asks clients to retry, so the test disables retries.
	err := s.viewer.OCM.SearchV1alpha1().RESTClient().Get().Namespace(s.seen.name).Resource("fleetresources").Param("resourceVersion", "99999999999").MaxRetries(0).Do(ctx).Error()
	if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("list of a future version: error = %v, want Timeout with cause ResourceVersionTooLarge", err)
	}
	for _, bad := range []string{"yesterday", "-1"} {
		if _, err := objects.List(ctx, metav1.ListOptions{ResourceVersion: bad}); err == nil {
			t.Errorf("list at version %q succeeded, want an error", bad)
		}
		watching, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: bad})
		if err == nil {
			watching.Stop()
			t.Errorf("watch from version %q succeeded, want an error", bad)
		}
	}
}

// next returns the next event of a watch that is not a bookmark.
func next(t *testing.T, watching watch.Interface) (watch.EventType, *searchv1alpha1.FleetResource) {
	t.Helper()
	for {
		event := nextOfAny(t, watching)
		if event.Type == watch.Bookmark {
			continue
		}
		object, ok := event.Object.(*searchv1alpha1.FleetResource)
		if !ok {
			t.Fatalf("event = %s %v, want a FleetResource", event.Type, event.Object)
		}
		return event.Type, object
	}
}

func nextOfAny(t *testing.T, watching watch.Interface) watch.Event {
	t.Helper()
	deadline := time.NewTimer(await.Patience)
	defer deadline.Stop()
	select {
	case event, open := <-watching.ResultChan():
		if !open {
			t.Fatal("the watch ended, want an event")
		}
		return event
	case <-deadline.C:
		t.Fatalf("the watch returned no event within %s", await.Patience)
	}
	return watch.Event{}
}

func wantEvent(t *testing.T, watching watch.Interface, typed watch.EventType, name string) *searchv1alpha1.FleetResource {
	t.Helper()
	got, object := next(t, watching)
	if got != typed || object.Name != name {
		t.Fatalf("event = %s %s, want %s %s", got, object.Name, typed, name)
	}
	return object
}

// wantEvents waits until a watch has sent one event of a type for each name, in any order, and no others.
func wantEvents(t *testing.T, watching watch.Interface, typed watch.EventType, names ...string) {
	t.Helper()
	left := sets.New(names...)
	for len(left) > 0 {
		got, object := next(t, watching)
		if got != typed || !left.Has(object.Name) {
			t.Fatalf("event = %s %s, want %s of one of %v", got, object.Name, typed, sets.List(left))
		}
		if object.Resource.Kind == "" || object.Resource.Name == "" {
			t.Errorf("resource of the %s event = %+v, want kind and name", got, object.Resource)
		}
		left.Delete(object.Name)
	}
}

func TestFleetResourcesAreWatched(t *testing.T) { onShared(t, fleetResourcesAreWatched) }

func fleetResourcesAreWatched(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	ctx, objects := t.Context(), s.viewer.OCM.SearchV1alpha1().FleetResources(metav1.NamespaceAll)
	running := metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "kind=Pod,status=Running"}
	list := framework.Must(objects.List(ctx, running))(t)
	running.ResourceVersion = list.ResourceVersion
	watching := framework.Must(objects.Watch(ctx, running))(t)
	defer watching.Stop()

	pod := func(name, status string) inventory.Resource {
		return s.seen.resource("Pod", "payments", name, with{"label": with{"app": "web"}, "status": status})
	}
	other := s.hidden.resource("Pod", "payments", "web-1-z", with{"label": with{"app": "web"}, "status": "Running"})
	s.hidden.changes(t, inventory.Sync{AddResources: []inventory.Resource{other}})
	s.seen.changes(t, inventory.Sync{AddResources: []inventory.Resource{pod("web-1-c", "Pending"), s.seen.resource("ConfigMap", "default", "noise", nil)}})
	s.seen.changes(t, inventory.Sync{UpdateResources: []inventory.Resource{pod("web-1-c", "Running")}})
	added := wantEvent(t, watching, watch.Added, "pod.payments.web-1-c")
	extended := pod("web-1-c", "Running")
	extended.Properties["restarts"] = []byte("1")
	s.seen.changes(t, inventory.Sync{UpdateResources: []inventory.Resource{extended}})
	modified := wantEvent(t, watching, watch.Modified, "pod.payments.web-1-c")
	if !strings.Contains(string(modified.Properties.Raw), `"restarts":1`) {
		t.Errorf("properties after the change = %s, want restarts 1", modified.Properties.Raw)
	}
	s.seen.changes(t, inventory.Sync{UpdateResources: []inventory.Resource{pod("web-1-c", "Failed")}})
	wantEvent(t, watching, watch.Deleted, "pod.payments.web-1-c")
	s.seen.changes(t, inventory.Sync{DeleteResources: []inventory.Deleted{{UID: s.seen.name + "/pod.payments.web-1-a"}}})
	wantEvent(t, watching, watch.Deleted, "pod.payments.web-1-a")

	t.Run("from a version", func(t *testing.T) {
		again := running
		again.ResourceVersion = added.ResourceVersion
		watching := framework.Must(objects.Watch(t.Context(), again))(t)
		defer watching.Stop()
		wantEvent(t, watching, watch.Modified, "pod.payments.web-1-c")
		wantEvent(t, watching, watch.Deleted, "pod.payments.web-1-c")
		wantEvent(t, watching, watch.Deleted, "pod.payments.web-1-a")
	})
	t.Run("from the beginning", func(t *testing.T) {
		for _, version := range []string{"", "0"} {
			watching := framework.Must(objects.Watch(t.Context(), metav1.ListOptions{FieldSelector: "kind=Node", ResourceVersion: version}))(t)
			wantEvent(t, watching, watch.Added, "node.node-1")
			watching.Stop()
		}
	})
	t.Run("one object by name", func(t *testing.T) {
		watching := framework.Must(s.viewer.OCM.SearchV1alpha1().FleetResources(s.seen.name).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=configmap.default.settings"}))(t)
		defer watching.Stop()
		wantEvent(t, watching, watch.Added, "configmap.default.settings")
		s.seen.changes(t, inventory.Sync{AddResources: []inventory.Resource{s.seen.resource("ConfigMap", "default", "others", nil)}})
		s.seen.changes(t, inventory.Sync{DeleteResources: []inventory.Deleted{{UID: s.seen.name + "/configmap.default.settings"}}})
		wantEvent(t, watching, watch.Deleted, "configmap.default.settings")
	})
	t.Run("an unknown version", func(t *testing.T) {
		watching, err := objects.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "99999999999"})
		expired(t, watching, err)
	})
}

// expired checks that the server rejects a watch with 410, or ends it with that error.
func expired(t *testing.T, watching watch.Interface, err error) {
	t.Helper()
	if err == nil {
		defer watching.Stop()
		event := nextOfAny(t, watching)
		if event.Type != watch.Error {
			t.Fatalf("event = %s %v, want ERROR", event.Type, event.Object)
		}
		err = apierrors.FromObject(event.Object)
	}
	isRefused(t, err, http.StatusGone)
}

// TestFleetResourcesInAnInformer checks a streamed list and an informer of FleetResources, as controllers use them.
func TestFleetResourcesInAnInformer(t *testing.T) { onShared(t, fleetResourcesInAnInformer) }

func fleetResourcesInAnInformer(t *testing.T, f *fleet) {
	s := f.smallFleet(t)
	ctx := t.Context()
	watching := framework.Must(s.viewer.OCM.SearchV1alpha1().FleetResources(s.seen.name).Watch(ctx, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}))(t)
	defer watching.Stop()
	var initial []string
	for {
		event := nextOfAny(t, watching)
		object, ok := event.Object.(*searchv1alpha1.FleetResource)
		if !ok {
			t.Fatalf("event = %s %v, want a FleetResource", event.Type, event.Object)
		}
		if event.Type == watch.Added {
			initial = append(initial, object.Name)
			continue
		}
		if event.Type != watch.Bookmark || object.Annotations[metav1.InitialEventsAnnotationKey] != "true" || object.ResourceVersion == "" {
			t.Fatalf("event = %s %+v, want a BOOKMARK that ends the initial events", event.Type, object)
		}
		break
	}
	if len(initial) != 9 {
		t.Errorf("streamed list = %v, want 9 objects", initial)
	}

	factory := externalversions.NewSharedInformerFactoryWithOptions(s.viewer.OCM, 0, externalversions.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = "kind=Pod"
	}))
	informer := factory.Search().V1alpha1().FleetResources()
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer cancel()
	factory.StartWithContext(ctx)
	for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatal("timeout waiting for the informer's list")
		}
	}
	has := func(want int) {
		t.Helper()
		framework.Eventually(t, fmt.Sprintf("the informer contains %d Pods", want), func(context.Context) error {
			if got := len(informer.Informer().GetStore().List()); got != want {
				return fmt.Errorf("the informer contains %d objects", got)
			}
			return nil
		})
	}
	has(4)
	s.seen.changes(t, inventory.Sync{
		AddResources:    []inventory.Resource{s.seen.resource("Pod", "default", "fresh", with{"status": "Running"}), s.seen.resource("ConfigMap", "default", "fresh", nil)},
		DeleteResources: []inventory.Deleted{{UID: s.seen.name + "/pod.default.bare"}, {UID: s.seen.name + "/pod.default.job-x"}},
	})
	has(3)
	if _, err := informer.Lister().FleetResources(s.seen.name).Get("pod.default.fresh"); err != nil {
		t.Error(err)
	}
}
