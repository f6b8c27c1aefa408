package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

const (
	// atFirst stands for the resource version of the first object.
	atFirst = "first"
	// future is a resource version that no server reaches.
	future = "9000000000000000000"
)

// watchParameters are combinations of parameters of a watch.
var watchParameters = map[string]metav1.ListOptions{
	"none":                       {},
	"limit":                      {Limit: 1},
	"negative limit":             {Limit: -1},
	"limit, any version":         {Limit: 1, ResourceVersion: "0"},
	"limit, version":             {Limit: 1, ResourceVersion: atFirst},
	"continue":                   {Continue: "nonsense"},
	"continue, any version":      {Continue: "nonsense", ResourceVersion: "0"},
	"continue, version":          {Continue: "nonsense", ResourceVersion: atFirst},
	"bookmarks":                  {AllowWatchBookmarks: true},
	"stream, limit":              streaming(true, "", metav1.ListOptions{Limit: 1, AllowWatchBookmarks: true}),
	"stream, limit, any version": streaming(true, "0", metav1.ListOptions{Limit: 1, AllowWatchBookmarks: true}),
	"stream, limit, version":     streaming(true, atFirst, metav1.ListOptions{Limit: 1, AllowWatchBookmarks: true}),
	"stream, no bookmarks":       streaming(true, "", metav1.ListOptions{}),
	"no stream":                  streaming(false, "", metav1.ListOptions{Limit: 1, AllowWatchBookmarks: true}),
	"no stream, any version":     streaming(false, "0", metav1.ListOptions{Limit: 1, AllowWatchBookmarks: true}),
	"no stream, version":         streaming(false, atFirst, metav1.ListOptions{Limit: 1, AllowWatchBookmarks: true}),
}

// refusedWatchParameters are combinations that Kubernetes refuses.
var refusedWatchParameters = map[string]metav1.ListOptions{
	"stream, continue":           streaming(true, "", metav1.ListOptions{Continue: "nonsense"}),
	"stream, exact version":      exactly(streaming(true, atFirst, metav1.ListOptions{})),
	"stream, any match":          matching(streaming(true, "", metav1.ListOptions{}), ""),
	"match, no stream":           {ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
	"exact version":              {ResourceVersion: atFirst, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
	"invalid version":            {ResourceVersion: "nonsense"},
	"invalid version, limit":     {ResourceVersion: "nonsense", Limit: 1},
	"stream, invalid version":    streaming(true, "nonsense", metav1.ListOptions{AllowWatchBookmarks: true}),
	"no stream, invalid version": streaming(false, "nonsense", metav1.ListOptions{}),
	"stream, future version":     streaming(true, future, metav1.ListOptions{AllowWatchBookmarks: true}),
}

func streaming(initialEvents bool, resourceVersion string, options metav1.ListOptions) metav1.ListOptions {
	options.SendInitialEvents, options.ResourceVersion = &initialEvents, resourceVersion
	return matching(options, metav1.ResourceVersionMatchNotOlderThan)
}

func exactly(options metav1.ListOptions) metav1.ListOptions {
	return matching(options, metav1.ResourceVersionMatchExact)
}

func matching(options metav1.ListOptions, match metav1.ResourceVersionMatch) metav1.ListOptions {
	options.ResourceVersionMatch = match
	return options
}

// watched are the objects of a test and a client that watches them.
type watched struct {
	client dynamic.ResourceInterface
	// label is a part of the name of each object of the test.
	label string
	// create creates an object with a name, and returns its resource version.
	create func(name string) string
	// remove deletes such an object, and waits until it does not exist.
	remove func(name string)
}

// outcome is what a client receives from a watch.
type outcome struct {
	// Refused is the status code with which the server refuses the watch, or ends it.
	Refused int32
	// Added are the objects that exist before the watch and that the client receives. Ended is true if a bookmark
	// marks the end of the initial events.
	Added string
	Ended bool
}

// outcomes watches with each combination of parameters. Each watch adds an object, so the outcomes for two resources are
// comparable.
func (w *watched) outcomes(t *testing.T, parameters map[string]metav1.ListOptions) map[string]outcome {
	t.Helper()
	first := w.create(w.label + "-first")
	for _, name := range []string{"second", "third"} {
		w.create(w.label + "-" + name)
	}
	await.Eventually(t, "the objects are listed", func(ctx context.Context) error {
		list, err := w.client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var listed []string
		for _, name := range namesOf(list) {
			if strings.Contains(name, w.label) {
				listed = append(listed, name)
			}
		}
		if len(listed) != 3 {
			return fmt.Errorf("list = %v, want 3 objects", listed)
		}
		return nil
	})
	out := map[string]outcome{}
	for i, name := range slices.Sorted(maps.Keys(parameters)) {
		options := parameters[name]
		if options.ResourceVersion == atFirst {
			options.ResourceVersion = first
		}
		out[name] = w.outcome(t, options, fmt.Sprintf("later-%02d", i))
	}
	return out
}

// outcome watches until the client receives an object that is created after the start of the watch. A server ends the watch
// of a client that reads too slowly, which a busy machine may cause: the client then watches again.
func (w *watched) outcome(t *testing.T, options metav1.ListOptions, later string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for {
		if out, complete := w.watch(ctx, t, options, later); complete {
			return out
		}
		if ctx.Err() != nil || w.remove == nil {
			t.Fatalf("Watch(%+v): the watch ended before the event of %s", options, later)
		}
		w.remove(w.label + "-" + later)
	}
}

// watch returns false if the watch ends before the event.
func (w *watched) watch(ctx context.Context, t *testing.T, options metav1.ListOptions, later string) (out outcome, complete bool) {
	t.Helper()
	watcher, err := w.client.Watch(ctx, options)
	w.create(w.label + "-" + later)
	if err != nil {
		return outcome{Refused: codeOf(err)}, true
	}
	defer watcher.Stop()
	var added []string
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			return outcome{Refused: codeOf(apierrors.FromObject(event.Object))}, true
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			t.Fatal(err)
		}
		_, name, ours := strings.Cut(object.GetName(), w.label+"-")
		switch {
		case event.Type == watch.Bookmark:
			out.Ended = out.Ended || object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		case event.Type != watch.Added || !ours:
		case name == later:
			slices.Sort(added)
			out.Added = strings.Join(added, " ")
			return out, true
		default:
			added = append(added, name)
		}
	}
	return out, false
}

// codeOf returns the status code of an error of the API, or -1.
func codeOf(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return -1
}

// configMaps returns watched ConfigMaps of the hub.
func (h *hub) configMaps(t *testing.T, namespace, label string, all bool) *watched {
	t.Helper()
	resource := h.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	w := &watched{client: resource.Namespace(namespace), label: label}
	if all {
		w.client = resource
	}
	w.create = func(name string) string {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
		object.SetName(name)
		created, err := resource.Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("create: %v", err)
		}
		return created.GetResourceVersion()
	}
	return w
}

// objects returns watched objects of a place. client is the client that watches them.
func (p *place) objects(t *testing.T, client dynamic.ResourceInterface) *watched {
	t.Helper()
	return &watched{client: client, label: p.label, create: func(name string) string {
		created, err := p.client.Create(t.Context(), p.named(t, name), metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("create: %v", err)
		}
		return created.GetResourceVersion()
	}, remove: func(name string) {
		name = p.named(t, name).GetName()
		if err := p.client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("delete: %v", err)
		}
		await.Eventually(t, name+" is deleted", func(ctx context.Context) error {
			_, err := p.client.Get(ctx, name, metav1.GetOptions{})
			return framework.IsGone(err)
		})
	}}
}

// wantSame checks that watches have the same outcomes as watches of ConfigMaps. A refusal may have another status code
// that tells the client to change its request, or to list again.
func wantSame(t *testing.T, got, want map[string]outcome) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if code := got[name].Refused; want[name].Refused != 0 && (code >= 400 && code < 500 || code == http.StatusGatewayTimeout) {
			continue
		}
		if !reflect.DeepEqual(got[name], want[name]) {
			t.Errorf("outcome of a watch with %s = %+v, want %+v as for ConfigMaps", name, got[name], want[name])
		}
	}
}

// TestWatchParameters checks that the server uses and ignores the parameters of a watch like the kube-apiserver.
func TestWatchParameters(t *testing.T) {
	all := maps.Clone(watchParameters)
	maps.Copy(all, refusedWatchParameters)
	forEach(t, func(t *testing.T, p *place) {
		wantSame(t, p.objects(t, p.client).outcomes(t, all), p.hub.configMaps(t, p.inNamespace(), p.label, false).outcomes(t, all))
		if !p.ClusterScoped {
			p = p.hub.newPlace(t, p.kind)
			wantSame(t, p.objects(t, p.hub.dynamic.Resource(p.gvr())).outcomes(t, all), p.hub.configMaps(t, p.namespace, p.label, true).outcomes(t, all))
		}
	})
}

// shown contains the virtual resources that clients watch, and the kind whose objects they show. If it is empty, the
// test creates no object that the resource shows, and only checks which parameters are refused.
var shown = map[string]string{
	"fleetresources.search.open-cluster-management.io":          "ManagedCluster",
	"managedclusters.clusterview.open-cluster-management.io":    "ManagedCluster",
	"managedclustersets.clusterview.open-cluster-management.io": "ManagedClusterSet",
	"userpermissions.clusterview.open-cluster-management.io":    "",
}

// TestWatchParametersOfVirtualResources checks the same for the resources that are not stored. They keep no past
// versions: a watch from another version than the current one is refused, or continues if the server still has the
// changes.
func TestWatchParametersOfVirtualResources(t *testing.T) {
	t.Parallel()
	for _, row := range apiserver.Virtual(apiserver.VirtualDependencies{}) {
		gvr := row.Version.WithResource(row.Name)
		list, err := shared.kube.Discovery().ServerResourcesForGroupVersion(row.Version.String())
		if err != nil {
			t.Fatal(err)
		}
		watchable := slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
			return r.Name == row.Name && slices.Contains(r.Verbs, "watch")
		})
		source, known := shown[gvr.GroupResource().String()]
		if watchable != known {
			t.Errorf("%s: watchable = %t, but in the table shown = %t, want the same", gvr, watchable, known)
		}
		if !watchable {
			continue
		}
		t.Run(gvr.GroupResource().String(), func(t *testing.T) {
			t.Parallel()
			client := shared.dynamic.Resource(gvr)
			for name, options := range refusedWatchParameters {
				if options.ResourceVersion == future && row.Version.Group == clusterviewv1.GroupName {
					continue // versions of views of other servers may be later
				}
				if options.ResourceVersion == atFirst {
					options.ResourceVersion = "1"
				}
				watcher, err := client.Watch(t.Context(), options)
				if err == nil {
					watcher.Stop()
				}
				if code := codeOf(err); code < 400 || code > 499 && code != http.StatusGatewayTimeout {
					t.Errorf("Watch() with %s: error = %v, want a refusal as for ConfigMaps", name, err)
				}
			}
			if source == "" {
				return
			}
			current := maps.Clone(watchParameters)
			maps.DeleteFunc(current, func(_ string, options metav1.ListOptions) bool { return options.ResourceVersion == atFirst })
			kinds := kinds()
			p := shared.newPlace(t, kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.Kind == source })])
			wantSame(t, p.objects(t, client).outcomes(t, current), shared.configMaps(t, p.inNamespace(), p.label, false).outcomes(t, current))
		})
	}
}
