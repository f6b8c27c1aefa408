package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/await"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

const (
	storedDir = "testdata/stored"
	head      = "HEAD"
	// updateStored is the environment variable that makes TestStoredObjects write HEAD.
	updateStored = "UPDATE_STORED_OBJECTS"
	// label is a label that the test writes.
	label = "upgrade.open-cluster-management.io/test"
)

// stored is an object as a release has written it.
type stored struct {
	row    definition.Resource
	raw    []byte
	object *unstructured.Unstructured
}

// TestStoredObjects starts the server on an object of each resource of each release. In every served
// version, clients can get, list, watch, update, apply and delete it.
func TestStoredObjects(t *testing.T) {
	if os.Getenv(updateStored) != "" {
		writeStored(t)
	}
	releases, err := os.ReadDir(storedDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range releases {
		t.Run(release.Name(), func(t *testing.T) {
			t.Parallel()
			objects := readStored(t, release.Name())
			withData(t, func(ctx context.Context, client *clientv3.Client) {
				for _, o := range objects {
					if _, err := client.Put(ctx, keyOf(&o.row, o.object), string(o.raw)); err != nil {
						t.Fatal(err)
					}
				}
			})
			f := framework.OwnFleet(t, localhub.FleetOptions{APIServerArgs: []string{"--runtime-config=" + proxyv1alpha1.SchemeGroupVersion.String() + "=true"}})
			if err := f.Server.Register(t.Context(), proxyv1alpha1.GroupName); err != nil {
				t.Fatal(err)
			}
			client := framework.Must(dynamic.NewForConfig(f.Hub.AdminConfig()))(t)
			// An object is deleted after those that need it.
			slices.Reverse(objects)
			for _, o := range objects {
				t.Run(o.row.Name+"."+o.row.Group(), func(t *testing.T) { o.check(t, client) })
			}
			if !f.Server.Running() {
				t.Fatal(f.Server.Failure())
			}
		})
	}
}

// fileOf returns the name of the file with the object of a resource.
func fileOf(row *definition.Resource) string { return row.Name + "." + row.Group() + ".json" }

// readStored returns the objects of a release. HEAD has one for each resource.
func readStored(t *testing.T, release string) []stored {
	t.Helper()
	var objects []stored
	for _, row := range resources() {
		content, err := os.ReadFile(filepath.Join(storedDir, release, fileOf(&row)))
		if os.IsNotExist(err) && release != head {
			continue
		}
		if err != nil {
			t.Fatalf("stored object of %s: %v; set %s=1 to write it", row.Name, err, updateStored)
		}
		var raw bytes.Buffer
		if err := json.Compact(&raw, content); err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw.Bytes()); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, stored{row: row, raw: raw.Bytes(), object: object})
	}
	return objects
}

func (o stored) check(t *testing.T, client dynamic.Interface) {
	for _, version := range o.row.Versions {
		t.Run(version.Version+"."+version.Group, func(t *testing.T) {
			resource := client.Resource(version.WithResource(o.row.Name)).Namespace(o.object.GetNamespace())
			got, err := resource.Get(t.Context(), o.object.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			o.equals(t, got, version)
			list, err := resource.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return u.GetUID() == o.object.GetUID() }) {
				t.Errorf("list of %s lacks %s", o.row.Name, o.object.GetName())
			}
			events, err := resource.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.name=" + o.object.GetName()})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			waitFor(t, events, "the watch begins with the object", func(u *unstructured.Unstructured) bool { return u.GetUID() == o.object.GetUID() })
			if !o.row.ServerOwned {
				o.write(t, resource, events, version)
			}
		})
	}
	if o.row.ServerOwned {
		return
	}
	resource := client.Resource(o.row.Versions[0].WithResource(o.row.Name)).Namespace(o.object.GetNamespace())
	if err := resource.Delete(t.Context(), o.object.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, o.row.Kind+" "+o.object.GetName()+" is deleted", func(ctx context.Context) error {
		_, err := resource.Get(ctx, o.object.GetName(), metav1.GetOptions{})
		return framework.IsGone(err)
	})
}

// equals checks that an object has the metadata of the stored one and, in the stored version, its spec.
// Controllers may change its status.
func (o stored) equals(t *testing.T, got *unstructured.Unstructured, version schema.GroupVersion) {
	t.Helper()
	if got.GetUID() != o.object.GetUID() || got.GetGeneration() != o.object.GetGeneration() || got.GetCreationTimestamp() != o.object.GetCreationTimestamp() {
		t.Errorf("metadata of %s = %v, want the uid, the generation and the creationTimestamp of %v", o.object.GetName(), got.Object["metadata"], o.object.Object["metadata"])
	}
	if version == o.row.StoredVersion() && !reflect.DeepEqual(got.Object["spec"], o.object.Object["spec"]) {
		t.Errorf("spec of %s = %v, want %v", o.object.GetName(), got.Object["spec"], o.object.Object["spec"])
	}
}

// write updates an object in each way, and checks that its spec stays the same.
func (o stored) write(t *testing.T, resource dynamic.ResourceInterface, events watch.Interface, version schema.GroupVersion) {
	t.Helper()
	name := o.object.GetName()
	// A controller may write the status at the same time.
	framework.Eventually(t, "an update without a change keeps the resource version", func(ctx context.Context) error {
		before, err := resource.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		after, err := resource.Update(ctx, before, metav1.UpdateOptions{})
		if err == nil && after.GetResourceVersion() != before.GetResourceVersion() {
			err = fmt.Errorf("resourceVersion = %s, want %s", after.GetResourceVersion(), before.GetResourceVersion())
		}
		return err
	})
	value := version.Version + "." + version.Group
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, label, value)
	patched, err := resource.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.equals(t, patched, version)
	waitFor(t, events, "the watch has the label", func(u *unstructured.Unstructured) bool { return u.GetLabels()[label] == value })

	applied := &unstructured.Unstructured{}
	applied.SetGroupVersionKind(version.WithKind(o.row.Kind))
	applied.SetName(name)
	applied.SetNamespace(o.object.GetNamespace())
	applied.SetLabels(map[string]string{label + "-apply": value})
	result, err := resource.Apply(t.Context(), name, applied, metav1.ApplyOptions{FieldManager: "upgrade", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	o.equals(t, result, version)
	if got := result.GetLabels(); got[label] != value || got[label+"-apply"] != value {
		t.Errorf("labels after server-side apply = %v, want both labels of the test", got)
	}
}

// waitFor waits for an event of an object.
func waitFor(t *testing.T, events watch.Interface, what string, match func(*unstructured.Unstructured) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				t.Fatalf("waiting until %s: the watch ended", what)
			}
			if object, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Error && match(object) {
				return
			}
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v", what, ctx.Err())
		}
	}
}

// writeStored writes HEAD: it applies the examples to a server and copies what etcd then contains.
func writeStored(t *testing.T) {
	t.Helper()
	f := framework.OwnFleet(t, localhub.FleetOptions{})
	keys := map[string]definition.Resource{}
	for _, row := range resources() {
		meta := &metav1.ObjectMeta{Name: framework.Cluster1}
		if !row.ServerOwned {
			content := framework.Must(os.ReadFile(filepath.Join(localhub.Root(), "artifacts", "example", row.Singular+".yaml")))(t)
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(content, &object.Object); err != nil {
				t.Fatal(err)
			}
			framework.Eventually(t, "the example of "+row.Kind+" is applied", func(ctx context.Context) error { return f.Hub.Apply(ctx, object) })
			meta.Name, meta.Namespace = object.GetName(), object.GetNamespace()
			if row.Kind == "ManagedCluster" {
				if err := localhub.WaitAccepted(t.Context(), f.Hub, meta.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
		keys[keyOf(&row, meta)] = row
	}
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	withData(t, func(ctx context.Context, client *clientv3.Client) {
		for key, row := range keys {
			answer, err := client.Get(ctx, key)
			if err != nil || len(answer.Kvs) != 1 {
				t.Fatalf("stored %s: %v, %v, want one value", key, answer, err)
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, answer.Kvs[0].Value, "", "  "); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(storedDir, head), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(storedDir, head, fileOf(&row)), indented.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}
