package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// TestExplain checks that kubectl explain describes every field.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, k := range served() {
		t.Run(k.arg(), func(t *testing.T) {
			t.Parallel()
			document := openAPIv3(t, k.version)
			w := &fieldWalk{document: document, seen: map[string]bool{}, fields: map[string]bool{}}
			definition, ok := w.find(k.gvk())
			if !ok {
				t.Fatalf("the OpenAPI v3 document of %s has no definition of %s", k.version, k.Kind)
			}
			w.walk(definition, k.Kind)
			for _, path := range w.undescribed {
				t.Errorf("field %s has no description", path)
			}
			if !w.fields["spec"] || len(w.fields) < 10 {
				t.Fatalf("fields = %v, want spec and at least 10 fields", slices.Sorted(maps.Keys(w.fields)))
			}

			stdout, stderr, err := shared.kubectl(t, "", "explain", k.Name, "--api-version="+k.version.String(), "--recursive")
			if err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			wantContains(t, stdout, "KIND:       "+k.Kind, "FIELDS:")
			for field := range w.fields {
				wantContains(t, stdout, "  "+field+"\t")
			}
		})
	}
}

// TestOpenAPIv3 checks the definitions in the OpenAPI v3 document of every served version.
func TestOpenAPIv3(t *testing.T) {
	t.Parallel()
	checked := map[schema.GroupVersion]bool{}
	for _, k := range served() {
		if checked[k.version] {
			continue
		}
		checked[k.version] = true
		t.Run(k.version.String(), func(t *testing.T) {
			checkDefinitions(t, openAPIv3(t, k.version), "components", "schemas")
		})
	}
}

// TestOpenAPIv2 checks the hub's OpenAPI v2 document, into which the aggregation layer merges the
// document of the server.
func TestOpenAPIv2(t *testing.T) {
	t.Parallel()
	var document map[string]any
	await.Eventually(t, "the hub's OpenAPI v2 document contains all served resources", func(ctx context.Context) error {
		content, err := shared.kube.Discovery().RESTClient().Get().AbsPath("/openapi/v2").
			SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return err
		}
		document = nil
		if err := json.Unmarshal(content, &document); err != nil {
			return err
		}
		paths, _ := document["paths"].(map[string]any)
		var errs []error
		for _, k := range served() {
			if paths[k.path("")] == nil {
				errs = append(errs, fmt.Errorf("no path %s", k.path("")))
			}
		}
		return errors.Join(errs...)
	})
	checkDefinitions(t, document, "definitions")
}

// checkDefinitions checks the names of all definitions, which are at path in the document, and
// checks that every reference resolves to a definition.
func checkDefinitions(t *testing.T, document map[string]any, path ...string) {
	t.Helper()
	definitions := document
	for _, element := range path {
		definitions, _ = definitions[element].(map[string]any)
	}
	if len(definitions) == 0 {
		t.Fatalf("document has no definitions at %v", path)
	}
	for name := range definitions {
		// A slash must be escaped in references, and many clients do not handle the escape.
		if strings.Contains(name, "/") {
			t.Errorf("definition %q has a slash in its name", name)
		}
	}
	forEachReference(document, func(reference string) {
		var node any = document
		for _, element := range strings.Split(strings.TrimPrefix(reference, "#/"), "/") {
			parent, _ := node.(map[string]any)
			node = parent[element]
		}
		if node == nil {
			t.Errorf("reference %q does not resolve", reference)
		}
	})
}

func forEachReference(node any, visit func(string)) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if reference, ok := value.(string); ok && key == "$ref" {
				visit(reference)
			} else {
				forEachReference(value, visit)
			}
		}
	case []any:
		for _, value := range node {
			forEachReference(value, visit)
		}
	}
}

func openAPIv3(t *testing.T, version schema.GroupVersion) map[string]any {
	t.Helper()
	paths, err := shared.kube.Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	path, ok := paths["apis/"+version.String()]
	if !ok {
		t.Fatalf("the OpenAPI v3 index does not contain %s", version)
	}
	content, err := path.Schema("application/json")
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	return document
}

// fieldWalk collects the fields of a kind, and the paths of fields without a description.
type fieldWalk struct {
	document    map[string]any
	seen        map[string]bool
	fields      map[string]bool
	undescribed []string
}

func (w *fieldWalk) definitions() map[string]any {
	components, _ := w.document["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	return schemas
}

func (w *fieldWalk) find(gvk schema.GroupVersionKind) (map[string]any, bool) {
	for _, definition := range w.definitions() {
		definition, _ := definition.(map[string]any)
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			kind, _ := kind.(map[string]any)
			if kind["group"] == gvk.Group && kind["version"] == gvk.Version && kind["kind"] == gvk.Kind {
				return definition, true
			}
		}
	}
	return nil, false
}

func (w *fieldWalk) walk(schema map[string]any, path string) {
	if reference, ok := schema["$ref"].(string); ok {
		name := strings.TrimPrefix(reference, "#/components/schemas/")
		if w.seen[name] {
			return
		}
		w.seen[name] = true
		definition, _ := w.definitions()[name].(map[string]any)
		w.walk(definition, path)
	}
	all, _ := schema["allOf"].([]any)
	for _, part := range all {
		part, _ := part.(map[string]any)
		w.walk(part, path)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		property, _ := property.(map[string]any)
		w.fields[name] = true
		if description, _ := property["description"].(string); description == "" {
			w.undescribed = append(w.undescribed, path+"."+name)
		}
		w.walk(property, path+"."+name)
	}
	for _, nested := range []string{"items", "additionalProperties"} {
		if nested, ok := schema[nested].(map[string]any); ok {
			w.walk(nested, path)
		}
	}
}
