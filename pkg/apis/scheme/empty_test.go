package scheme

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// If a type drops an empty field of a request, the next apply of the same file finds a
// difference. A CustomResourceDefinition keeps such fields.
func TestEmptyFieldsAreKept(t *testing.T) {
	files, err := filepath.Glob("testdata/empty/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob() = %d files, %v, want at least one", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			written := decoded(t, content)
			stored := decoded(t, throughStorage(t, content))
			if diff := cmp.Diff(written["spec"], stored["spec"], cmp.FilterPath(added, cmp.Ignore())); diff != "" {
				t.Errorf("spec differs (-written +stored):\n%s", diff)
			}
			// Typed clients and server-side apply keep the object unchanged.
			versioned, err := Scheme.New(kindOf(t, content))
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(content, versioned); err != nil {
				t.Fatal(err)
			}
			converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(versioned)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(written["spec"], jsonOf(t, converted)["spec"], cmp.FilterPath(added, cmp.Ignore())); diff != "" {
				t.Errorf("typed spec differs (-written +typed):\n%s", diff)
			}
		})
	}
}

// merged are the lists that kubectl and server-side apply compare element by element.
var merged = []string{"placements", "taints", "customizedVariables", "resourceRequirements"}

// added reports whether a field outside of lists was added by the server. kubectl ignores such
// fields, but compares most lists as a whole.
func added(path cmp.Path) bool {
	list := ""
	for _, step := range path {
		switch step := step.(type) {
		case cmp.MapIndex:
			list = step.Key().String()
		case cmp.SliceIndex:
			if !slices.Contains(merged, list) {
				return false
			}
		}
	}
	entry, isField := path.Last().(cmp.MapIndex)
	if !isField {
		return false
	}
	written, stored := entry.Values()
	return !written.IsValid() && stored.IsValid()
}

// throughStorage decodes an object like a request and encodes it like the storage.
func throughStorage(t *testing.T, content []byte) []byte {
	t.Helper()
	internal, gvk, err := Codecs.UniversalDecoder().Decode(content, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := runtime.Encode(Codecs.LegacyCodec(gvk.GroupVersion()), internal.DeepCopyObject())
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func decoded(t *testing.T, content []byte) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func jsonOf(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	content, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, content)
}

func kindOf(t *testing.T, content []byte) schema.GroupVersionKind {
	t.Helper()
	var meta runtime.TypeMeta
	if err := yaml.Unmarshal(content, &meta); err != nil {
		t.Fatal(err)
	}
	return schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind)
}
