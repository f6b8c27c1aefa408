package apiserver_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/apis/literal"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/test/registrytest"
)

// updateStored is the environment variable that makes TestStoredObjects write the objects of the
// current version.
const updateStored = "UPDATE_STORED_OBJECTS"

// storedDir contains one object of each stored resource, with every field, as the server writes it
// to etcd. HEAD is the current version. At each release, HEAD is copied to a directory with the name
// of the release, such as v0.1, which never changes again.
const storedDir = "testdata/stored"

// fillers fill types with unexported fields or with a fixed format.
var fillers = map[reflect.Type]roundtrip.FillFunc{
	reflect.TypeFor[*metav1.Time](): func(_ string, i int, obj any) {
		*obj.(*metav1.Time) = metav1.Date(2000+i, 1, 1, 1, 1, 1, 0, time.UTC)
	},
	reflect.TypeFor[*metav1.MicroTime](): func(_ string, i int, obj any) {
		*obj.(*metav1.MicroTime) = metav1.MicroTime{Time: time.Date(2000+i, 1, 1, 1, 1, 1, 1000, time.UTC)}
	},
	reflect.TypeFor[*metav1.FieldsV1](): func(_ string, _ int, obj any) {
		obj.(*metav1.FieldsV1).SetRawString(`{"f:spec":{}}`)
	},
	reflect.TypeFor[*runtime.RawExtension](): func(_ string, _ int, obj any) {
		obj.(*runtime.RawExtension).Raw = []byte(`{"apiVersion":"example.com/v1","kind":"Example","spec":{"replicas":1}}`)
	},
	reflect.TypeFor[*resource.Quantity](): func(_ string, i int, obj any) {
		*obj.(*resource.Quantity) = *resource.NewQuantity(int64(i), resource.DecimalSI)
	},
	reflect.TypeFor[*map[string]literal.Quantity](): func(s string, _ int, obj any) {
		*obj.(*map[string]literal.Quantity) = map[string]literal.Quantity{s + "Key": {JSON: `"0"`}}
	},
	reflect.TypeFor[*intstr.IntOrString](): func(s string, _ int, obj any) {
		*obj.(*intstr.IntOrString) = intstr.FromString(s + "Value")
	},
}

// TestStoredObjects checks that the server reads the objects of every release without losing a
// field, and that the stored form does not change unnoticed.
func TestStoredObjects(t *testing.T) {
	head := filepath.Join(storedDir, "HEAD")
	files := sets.New[string]()
	for _, row := range apiserver.Resources(apiserver.Dependencies{}) {
		name := fileOf(&row)
		files.Insert(name)
		t.Run(row.Name, func(t *testing.T) {
			codec := scheme.Codecs.LegacyCodec(row.StoredVersion())
			object, err := roundtrip.CompatibilityTestObject(scheme.Scheme, row.StoredVersion().WithKind(row.Kind), fillers)
			if err != nil {
				t.Fatal(err)
			}
			current, err := runtime.Encode(codec, object)
			if err != nil {
				t.Fatal(err)
			}
			if os.Getenv(updateStored) != "" {
				writeStored(t, filepath.Join(head, name), current)
			}
			if got := readStored(t, filepath.Join(head, name)); !bytes.Equal(got, bytes.TrimSpace(current)) {
				t.Errorf("stored %s =\n%s\nwant the object in %s:\n%s\nif the change is intended, set %s=1", row.Kind, current, head, got, updateStored)
			}
			for _, dir := range storedDirs(t) {
				stored := readStored(t, filepath.Join(dir, name))
				if stored == nil {
					// The release did not have the resource.
					continue
				}
				read, err := runtime.Decode(codec, stored)
				if err != nil {
					t.Fatalf("decoding the %s of %s: %v", row.Kind, dir, err)
				}
				again, err := runtime.Encode(codec, read)
				if err != nil {
					t.Fatal(err)
				}
				if got := bytes.TrimSpace(again); !bytes.Equal(got, stored) {
					t.Errorf("%s of %s, read and stored again =\n%s\nwant\n%s", row.Kind, dir, got, stored)
				}
			}
		})
	}
	for _, dir := range storedDirs(t) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if !files.Has(entry.Name()) {
				t.Errorf("%s of %s is not the object of a resource that the server stores", entry.Name(), dir)
			}
		}
	}
}

// TestStoredObjectsAreServed stores the objects of every release in etcd, and reads them in all
// served versions.
func TestStoredObjectsAreServed(t *testing.T) {
	rows := apiserver.Resources(apiserver.Dependencies{})
	for _, dir := range storedDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			database := registrytest.StartDatabase(t)
			for _, row := range rows {
				if stored := readStored(t, filepath.Join(dir, fileOf(&row))); stored != nil {
					database.Put(t, path.Join(row.Group(), row.Name, storedNamespace(&row), "nameValue"), stored)
				}
			}
			client := database.Serve(t, nil, rows...).Dynamic(t, "admin")
			for _, row := range rows {
				stored := readStored(t, filepath.Join(dir, fileOf(&row)))
				if stored == nil {
					continue
				}
				for _, version := range row.Versions {
					served, err := client.Resource(version.WithResource(row.Name)).List(t.Context(), metav1.ListOptions{})
					if err != nil {
						t.Errorf("list of %s in %s: %v", row.Name, version, err)
						continue
					}
					if len(served.Items) != 1 {
						t.Errorf("number of %s in %s = %d, want 1", row.Name, version, len(served.Items))
						continue
					}
					if version != row.StoredVersion() {
						continue
					}
					want := &unstructured.Unstructured{}
					if err := want.UnmarshalJSON(stored); err != nil {
						t.Fatal(err)
					}
					got := &served.Items[0]
					want.SetResourceVersion(got.GetResourceVersion())
					if !reflect.DeepEqual(got.Object, want.Object) {
						t.Errorf("served %s = %v, want %v", row.Kind, got.Object, want.Object)
					}
				}
			}
		})
	}
}

// storedDirs returns the directories of all releases and of the current version.
func storedDirs(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(storedDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// fileOf returns the name of the file with the stored object of a resource.
func fileOf(row *definition.Resource) string { return row.Name + "." + row.Group() + ".json" }

// storedNamespace returns the namespace of the stored object of a resource, or "" if it has none.
func storedNamespace(row *definition.Resource) string {
	if row.ClusterScoped {
		return ""
	}
	return "namespaceValue"
}

// readStored returns an object as it is stored, or nil if the file does not exist.
func readStored(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, content); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return compact.Bytes()
}

func writeStored(t *testing.T, file string, content []byte) {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, content, "", "  "); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, indented.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
