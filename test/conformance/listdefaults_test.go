package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TestFieldsOfListElements writes each field of each list element of the spec alone, or with the fewest other fields
// that the server accepts. Nothing may drift: a second kubectl apply of the same file patches nothing, server-side apply
// by another manager conflicts with nothing, and a replacement of the object by what was read changes nothing. The
// files in testdata/lists set all fields of list elements.
func TestFieldsOfListElements(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.arg(), func(t *testing.T) {
			t.Parallel()
			s := newSchemas(t, k)
			sample, all := k.listSample(t), s.fieldsInLists()
			if sample == nil {
				if len(all) > 0 {
					t.Fatalf("%s has fields in lists, %v, but no file in testdata/lists", k.Kind, all)
				}
				return
			}
			p := shared.newPlace(t, k)
			found := map[string]bool{}
			for i, leaf := range leaves(sample.Object["spec"], []any{"spec"}, false) {
				found[pattern(leaf)] = true
				t.Run(display(leaf), func(t *testing.T) { p.wantStable(t, s, sample, leaf, i) })
			}
			for _, field := range all {
				if !found[field] && !slices.Contains(impossible, field) {
					t.Errorf("the files in testdata/lists do not set %s of %s", field, k.Kind)
				}
			}
		})
	}
}

// keyed are the keys of list maps that have a default. Server-side apply identifies elements by them, so the server
// stores the default, and every element is written with its key.
var keyed = []string{"spec.manifestConfigs[].updateStrategy.serverSideApply.ignoreFields[].condition"}

// impossible are the fields that validation never accepts.
var impossible = []string{"spec.roles[].rules[].nonResourceURLs"}

// listSample returns the object of testdata/lists in the version of the kind, or nil if there is none.
func (k kind) listSample(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	for _, name := range []string{k.Singular + "-" + k.version.Version, k.Singular} {
		path := filepath.Join("testdata", "lists", name+".yaml")
		if files, _ := filepath.Glob(path); len(files) == 0 {
			continue
		}
		content, err := readYAML(path)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{Object: content}
		object.SetGroupVersionKind(k.gvk())
		return object
	}
	return nil
}

// leaves returns the paths of the scalars within lists. A list of scalars is a leaf.
func leaves(value any, path []any, inList bool) [][]any {
	var out [][]any
	switch value := value.(type) {
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(value)) {
			out = append(out, leaves(value[field], append(slices.Clone(path), field), inList)...)
		}
	case []any:
		for i, element := range value {
			if _, isObject := element.(map[string]any); isObject {
				out = append(out, leaves(element, append(slices.Clone(path), i), true)...)
			} else if inList && i == 0 {
				out = append(out, path)
			}
		}
	default:
		if inList {
			out = append(out, path)
		}
	}
	return out
}

// pattern returns a path without the indices of elements, and display with them.
func pattern(path []any) string { return joined(path, func(int) string { return "[]" }) }
func display(path []any) string {
	return joined(path, func(i int) string { return fmt.Sprintf("[%d]", i) })
}

func joined(path []any, index func(int) string) string {
	var b strings.Builder
	for _, step := range path {
		switch step := step.(type) {
		case int:
			b.WriteString(index(step))
		case string:
			b.WriteString("." + step)
		}
	}
	return strings.TrimPrefix(b.String(), ".")
}

// reduced returns a value with only those parts of its outermost list that keep accepts. Everything outside of this list
// stays. keep receives the path of a field that is not on the way to the leaf.
func reduced(value any, path, leaf []any, inList bool, keep func(path []any) bool) any {
	if len(leaf) == 0 {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for field, inner := range value {
			at := append(slices.Clone(path), field)
			switch {
			case field == leaf[0]:
				out[field] = reduced(inner, at, leaf[1:], inList, keep)
			case !inList || keep(at):
				out[field] = inner
			}
		}
		return out
	case []any:
		index, _ := leaf[0].(int)
		return []any{reduced(value[index], append(slices.Clone(path), index), leaf[1:], true, keep)}
	}
	return value
}

// wantStable checks an object that has as little as possible beside a leaf.
func (p *place) wantStable(t *testing.T, s *schemas, sample *unstructured.Unstructured, leaf []any, i int) {
	object := sample.DeepCopy()
	object.SetName(fmt.Sprintf("list-%d", i))
	if p.ClusterScoped {
		object.SetName(fmt.Sprintf("%s-%d", p.label, i))
	}
	object.SetNamespace(p.namespace)
	object.SetLabels(map[string]string{placeLabel: p.label})
	reduce := func(keep func(path []any) bool) *unstructured.Unstructured {
		out := object.DeepCopy()
		out.Object["spec"] = reduced(sample.Object["spec"], []any{"spec"}, leaf[1:], false, func(path []any) bool {
			return slices.Contains(keyed, pattern(path)) || keep(path)
		})
		return out
	}
	// First the leaf alone, then with the required fields, then with as few others as the server accepts.
	required := s.required()
	candidates := []*unstructured.Unstructured{
		reduce(func([]any) bool { return false }),
		reduce(func(path []any) bool { return required[pattern(path)] }),
	}
	for _, candidate := range candidates {
		if p.accepts(t, candidate) {
			p.wantNoDrift(t, s, candidate)
			return
		}
	}
	dropped := map[string]bool{}
	keep := func(path []any) bool { return !dropped[display(path)] }
	smallest := reduce(keep)
	var others []string
	reduce(func(path []any) bool { others = append(others, display(path)); return true })
	slices.Sort(others)
	for _, other := range others {
		dropped[other] = true
		if candidate := reduce(keep); p.accepts(t, candidate) {
			smallest = candidate
		} else {
			delete(dropped, other)
		}
	}
	p.wantNoDrift(t, s, smallest)
}

// accepts reports whether the server would create an object. Other errors than refusals fail the test.
func (p *place) accepts(t *testing.T, object *unstructured.Unstructured) bool {
	t.Helper()
	_, err := p.client.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		t.Fatalf("Create(%v) = %v, want nil or 422", object.Object["spec"], err)
	}
	return err == nil
}

func (p *place) wantNoDrift(t *testing.T, s *schemas, object *unstructured.Unstructured) {
	t.Helper()
	original, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	// These are the requests of kubectl apply.
	modified := object.DeepCopy()
	modified.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(original)})
	created, err := p.client.Create(t.Context(), modified, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"})
	if err != nil {
		t.Fatalf("Create(%v) = %v", object.Object["spec"], err)
	}
	if patch := s.patch(t, original, modified, created); string(patch) != "{}" {
		t.Errorf("second kubectl apply of %s patches %s, want {}; the stored spec is %v", original, patch, created.Object["spec"])
	}

	name, options := object.GetName(), metav1.ApplyOptions{FieldManager: "gitops"}
	first, err := p.client.Apply(t.Context(), name, object, options)
	if err != nil {
		t.Fatalf("Apply(%s) after kubectl apply = %v, want nil", original, err)
	}
	second, err := p.client.Apply(t.Context(), name, object, options)
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]*unstructured.Unstructured{"Apply()": first, "a second Apply()": second} {
		if !equality.Semantic.DeepEqual(created.Object["spec"], got.Object["spec"]) || got.GetGeneration() != created.GetGeneration() {
			t.Errorf("spec after %s = %v in generation %d, want %v in %d", what, got.Object["spec"], got.GetGeneration(), created.Object["spec"], created.GetGeneration())
		}
	}
	read := p.get(t, name)
	replaced, err := p.client.Update(t.Context(), read, metav1.UpdateOptions{FieldManager: "replace"})
	switch {
	case apierrors.IsConflict(err):
		// A controller has written the status.
	case err != nil:
		t.Errorf("Update(%v) = %v, want nil", read.Object, err)
	case replaced.GetResourceVersion() != read.GetResourceVersion():
		t.Errorf("resourceVersion after a replacement by what was read = %s, want %s", replaced.GetResourceVersion(), read.GetResourceVersion())
	}
	if err := p.client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// schemas are the OpenAPI schemas by which kubectl computes patches of a kind.
type schemas struct {
	all  map[string]*spec.Schema
	kind *spec.Schema
}

func newSchemas(t *testing.T, k kind) *schemas {
	t.Helper()
	content, err := json.Marshal(openAPIv3(t, k.version))
	if err != nil {
		t.Fatal(err)
	}
	document := &spec3.OpenAPI{}
	if err := json.Unmarshal(content, document); err != nil {
		t.Fatal(err)
	}
	s := &schemas{all: document.Components.Schemas}
	for _, schema := range s.all {
		for _, gvk := range asList(schema.Extensions["x-kubernetes-group-version-kind"]) {
			if gvk, _ := gvk.(map[string]any); gvk["group"] == k.version.Group && gvk["version"] == k.version.Version && gvk["kind"] == k.Kind {
				s.kind = schema
			}
		}
	}
	if s.kind == nil {
		t.Fatalf("the OpenAPI v3 document of %s has no %s", k.version, k.Kind)
	}
	return s
}

func asList(value any) []any {
	list, _ := value.([]any)
	return list
}

// patch returns the patch of kubectl apply.
func (s *schemas) patch(t *testing.T, original []byte, modified, current *unstructured.Unstructured) []byte {
	t.Helper()
	encode := func(object *unstructured.Unstructured) []byte {
		content, err := json.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, encode(modified), encode(current), strategicpatch.PatchMetaFromOpenAPIV3{SchemaList: s.all, Schema: s.kind}, true)
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// fieldsInLists returns the patterns of the scalars in list elements of the spec.
func (s *schemas) fieldsInLists() []string {
	var out []string
	s.walk("spec", func(path string, inList, _, leaf bool) {
		if inList && leaf {
			out = append(out, path)
		}
	})
	return out
}

// required returns the patterns of the required fields.
func (s *schemas) required() map[string]bool {
	out := map[string]bool{}
	s.walk("spec", func(path string, _, required, _ bool) {
		if required {
			out[path] = true
		}
	})
	return out
}

// walk visits the fields of the spec. A map and a list of scalars are leaves.
func (s *schemas) walk(path string, visit func(path string, inList, required, leaf bool)) {
	field := s.kind.Properties["spec"]
	s.visit(&field, path, false, visit)
}

func (s *schemas) visit(at *spec.Schema, path string, inList bool, visit func(path string, inList, required, leaf bool)) {
	at = s.resolve(at)
	if at.Items != nil {
		if items := s.resolve(at.Items.Schema); len(items.Properties) > 0 {
			s.visit(items, path+"[]", true, visit)
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(at.Properties)) {
		field := at.Properties[name]
		inner := s.resolve(&field)
		objects := len(inner.Properties) > 0 || inner.Items != nil && len(s.resolve(inner.Items.Schema).Properties) > 0
		// The fields of maps have any name, and the server sets times.
		leaf := !objects && inner.AdditionalProperties == nil && inner.Format != "date-time"
		visit(path+"."+name, inList, slices.Contains(at.Required, name), leaf)
		s.visit(inner, path+"."+name, inList, visit)
	}
}

func (s *schemas) resolve(at *spec.Schema) *spec.Schema {
	for {
		if len(at.AllOf) == 1 {
			at = &at.AllOf[0]
		}
		reference := at.Ref.String()
		if reference == "" {
			return at
		}
		at = s.all[strings.TrimPrefix(reference, "#/components/schemas/")]
	}
}
