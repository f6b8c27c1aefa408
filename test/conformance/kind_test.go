package conformance

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// placeLabel is a label of every object of a test. Its value identifies the test.
const placeLabel = "conformance.open-cluster-management.io/place"

// kind is a resource in one of its served versions.
type kind struct {
	definition.Resource
	version schema.GroupVersion
}

// kinds returns the kinds that users write.
func kinds() []kind {
	return slices.DeleteFunc(served(), func(k kind) bool { return k.ServerOwned })
}

// serverOwned returns the kinds that only the server writes.
func serverOwned() []kind {
	return slices.DeleteFunc(served(), func(k kind) bool { return !k.ServerOwned })
}

// served returns all kinds that the server stores and serves.
func served() []kind {
	var out []kind
	for _, resource := range apiserver.Resources(apiserver.Dependencies{}) {
		for _, version := range resource.Versions {
			k := kind{Resource: resource, version: version}
			if version.Group != resource.Group() {
				// A short name is unique across groups, so only the resource's main group has it.
				k.ShortNames, k.Categories = nil, nil
			}
			out = append(out, k)
		}
	}
	return out
}

// forEach runs a check as a parallel subtest for every kind, each in its own place.
func forEach(t *testing.T, check func(t *testing.T, p *place)) {
	t.Helper()
	forEachOf(t, kinds(), check)
}

// forEachWithStatus does the same as forEach for the kinds that have a status.
func forEachWithStatus(t *testing.T, check func(t *testing.T, p *place)) {
	t.Helper()
	forEachOf(t, slices.DeleteFunc(kinds(), func(k kind) bool { return !k.HasStatus() }), check)
}

func forEachOf(t *testing.T, kinds []kind, check func(t *testing.T, p *place)) {
	t.Helper()
	t.Parallel()
	if len(kinds) == 0 {
		t.Fatal("kinds = none, want at least one")
	}
	for _, k := range kinds {
		t.Run(k.arg(), func(t *testing.T) {
			t.Parallel()
			check(t, shared.newPlace(t, k))
		})
	}
}

func (k kind) gvr() schema.GroupVersionResource { return k.version.WithResource(k.Name) }
func (k kind) gvk() schema.GroupVersionKind     { return k.version.WithKind(k.Kind) }

// arg returns the fully qualified name of the kind for kubectl.
func (k kind) arg() string { return k.Name + "." + k.version.Version + "." + k.version.Group }

// path returns the URL path of the kind's collection in a namespace, or in all namespaces if
// namespace is empty.
func (k kind) path(namespace string) string {
	path := "/apis/" + k.version.String()
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.Name
}

// subresources returns the names of the subresources of an object.
func (k kind) subresources() []string {
	var out []string
	if k.HasStatus() {
		out = append(out, "status")
	}
	for name := range k.Subresources {
		out = append(out, name)
	}
	return out
}

// sample returns the object of artifacts/example, in the version of the kind.
func (k kind) sample(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	content, err := readYAML(filepath.Join(localhub.Root(), "artifacts", "example", k.Singular+".yaml"))
	if err != nil {
		t.Fatalf("example of %s: %v", k.Kind, err)
	}
	object := &unstructured.Unstructured{Object: content}
	if object.GetKind() != k.Kind || object.GroupVersionKind().Group != k.Group() {
		t.Fatalf("kind of the example of %s = %s, want %s of group %s", k.Name, object.GroupVersionKind(), k.Kind, k.Group())
	}
	object.SetGroupVersionKind(k.gvk())
	return object
}

// place separates the objects of one test and one kind from those of other tests. It has its own
// label and, for a namespaced kind, its own namespace.
type place struct {
	kind
	hub       *hub
	namespace string
	label     string
	client    dynamic.ResourceInterface
}

func (h *hub) newPlace(t *testing.T, k kind) *place {
	t.Helper()
	p := &place{kind: k, hub: h, label: "p-" + rand.String(8), client: h.dynamic.Resource(k.gvr())}
	if !k.ClusterScoped {
		p.namespace = p.label
		h.addCluster(t, p.namespace)
		p.client = h.dynamic.Resource(k.gvr()).Namespace(p.namespace)
	}
	return p
}

// addCluster creates a ManagedCluster and the namespace of the same name, for namespaced objects.
// They are not deleted, because the hub is deleted after the tests.
func (h *hub) addCluster(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := h.kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds() {
		if k.Kind != "ManagedCluster" || k.version.Group != "cluster.open-cluster-management.io" {
			continue
		}
		cluster := k.sample(t)
		cluster.SetName(name)
		if err := unattended[k.Kind](cluster); err != nil {
			t.Fatal(err)
		}
		if _, err := h.dynamic.Resource(k.gvr()).Create(t.Context(), cluster, metav1.CreateOptions{}); err != nil {
			t.Fatalf("ManagedCluster %s: %v", name, err)
		}
		return
	}
	t.Fatal("kinds() has no ManagedCluster")
}

// inNamespace returns the namespace of the place, or default for a cluster-scoped kind.
func (p *place) inNamespace() string {
	if p.ClusterScoped {
		return metav1.NamespaceDefault
	}
	return p.namespace
}

// selector returns the label selector of the objects of the place.
func (p *place) selector() string { return placeLabel + "=" + p.label }

func (p *place) listOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: p.selector()}
}

// object returns a new object of the place with a random name. It does not create it.
func (p *place) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	return p.named(t, "o-"+rand.String(8))
}

// named returns a new object of the place with a given name. It does not create it.
func (p *place) named(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	object := p.sample(t)
	object.SetName(name)
	object.SetNamespace(p.namespace)
	object.SetLabels(map[string]string{placeLabel: p.label})
	for _, complete := range []func(*unstructured.Unstructured) error{namedBySpec[p.Kind], unattended[p.Kind]} {
		if complete == nil {
			continue
		}
		if err := complete(object); err != nil {
			t.Fatal(err)
		}
	}
	return object
}

// create creates an object of the place.
func (p *place) create(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	created, err := p.client.Create(t.Context(), p.object(t), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return created
}

func (p *place) get(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := p.client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return object
}

// merge patches an object, or one of its subresources, with a JSON merge patch.
func (p *place) merge(t *testing.T, name string, patch map[string]any, subresources ...string) *unstructured.Unstructured {
	t.Helper()
	object, err := p.tryMerge(t, name, patch, subresources...)
	if err != nil {
		t.Fatalf("patch %v: %v", patch, err)
	}
	return object
}

// tryMerge does the same as merge, and returns the error.
func (p *place) tryMerge(t *testing.T, name string, patch map[string]any, subresources ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	content, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	return p.client.Patch(t.Context(), name, types.MergePatchType, content, metav1.PatchOptions{}, subresources...)
}

// names returns the names of the objects that a list with the options returns.
func (p *place) names(ctx context.Context, options metav1.ListOptions) ([]string, error) {
	list, err := p.client.List(ctx, options)
	if err != nil {
		return nil, err
	}
	return namesOf(list), nil
}

func namesOf(list *unstructured.UnstructuredList) []string {
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return names
}

// labelled returns a patch that sets a label.
func labelled(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}}
}
