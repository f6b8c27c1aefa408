package apiserver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/generated/openapi"
)

// TestListElementsAreKept checks, for each type that users write, that a list of its spec is stored as it was written:
// with each field of an element set alone, and with each field empty. kubectl apply and GitOps tools compare most lists
// as a whole, so a default or an empty field that the server adds, or a field that it drops, is a difference that
// remains. Only elements that kubectl and server-side apply identify by a key may get more fields.
func TestListElementsAreKept(t *testing.T) {
	for _, row := range apiserver.Resources(apiserver.Dependencies{}) {
		if row.ServerOwned {
			continue
		}
		for _, version := range row.Versions {
			t.Run(row.Name+"."+version.Version+"."+version.Group, func(t *testing.T) {
				w := newListWalk(t, version.WithKind(row.Kind))
				w.visit(w.root, func(value any) any { return value }, "spec", false)
			})
		}
	}
}

// droppedIfEmpty matches the fields that are not stored if they are empty. docs/adding-a-resource.md explains why.
var droppedIfEmpty = regexp.MustCompile(strings.Join([]string{
	`\.rules\[\]\.(apiGroups|nonResourceURLs|resourceNames|resources)$`,
	`[sS]elector\.(matchLabels|matchExpressions|matchExpressions\[\]\.values)$`,
	`\.(subject|subjects\[\])\.(apiGroup|namespace)$`,
	`\.(clusterRoleBindings|roleBindings|roles)\[\]\.(name|namespace)$`,
	`\.roleRefs\[\]\.(apiGroup|namespace)$`,
	`\.taints\[\]\.value$`,
	`\.manifestConfigs\[\]\.feedbackScrapeType$`,
	`\.(conditionRules|ignoreFields)\[\]\.condition$`,
	`\.serverSideApply\.fieldManager$`,
	`\.rolloutStrategy\.type$`,
}, "|"))

// complete matches objects of which validation requires all fields, although their OpenAPI definition does not, and
// elements that server-side apply identifies by a key, which therefore is stored with its default.
var complete = regexp.MustCompile(`^spec\.clusterRoleBindings\[\]\.roleRef$|\.ignoreFields\[\]$`)

// listWalk writes the fields of the lists of a type, one at a time.
type listWalk struct {
	t           *testing.T
	gvk         schema.GroupVersionKind
	root        *spec.Schema
	definitions map[string]spec.Schema
}

func newListWalk(t *testing.T, gvk schema.GroupVersionKind) *listWalk {
	namer := apiopenapi.NewDefinitionNamer(scheme.Scheme)
	w := &listWalk{t: t, gvk: gvk, definitions: map[string]spec.Schema{}}
	name := func(model string) string {
		friendly, _ := namer.GetDefinitionName(model)
		return friendly
	}
	for model, definition := range openapi.GetOpenAPIDefinitions(func(model string) spec.Ref { return spec.MustCreateRef(name(model)) }) {
		w.definitions[name(model)] = definition.Schema
	}
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	model := name(object.(interface{ OpenAPIModelName() string }).OpenAPIModelName())
	whole, found := w.definitions[model]
	if !found {
		t.Fatalf("no OpenAPI definition of %s", model)
	}
	specOfKind := whole.Properties["spec"]
	w.root = w.resolve(&specOfKind)
	return w
}

func (w *listWalk) resolve(s *spec.Schema) *spec.Schema {
	if len(s.AllOf) == 1 {
		s = &s.AllOf[0]
	}
	if ref := s.Ref.String(); ref != "" {
		definition, found := w.definitions[ref]
		if !found {
			w.t.Fatalf("no OpenAPI definition of %s", ref)
		}
		return &definition
	}
	return s
}

// visit checks a value at a path, and those within it. wrap returns the spec with the value. inList is set within lists.
func (w *listWalk) visit(s *spec.Schema, wrap func(any) any, path string, inList bool) {
	s = w.resolve(s)
	check := func(value any) {
		empty := value == "" || reflect.DeepEqual(value, []any{}) || reflect.DeepEqual(value, map[string]any{})
		if inList && !(empty && droppedIfEmpty.MatchString(path)) {
			w.check(wrap(value), path)
		}
	}
	switch {
	case s.Items != nil:
		check([]any{})
		w.visit(s.Items.Schema, func(value any) any { return wrap([]any{value}) }, path+"[]", true)
	case s.AdditionalProperties != nil:
		check(map[string]any{})
		w.visit(s.AdditionalProperties.Schema, func(value any) any { return wrap(map[string]any{"key": value}) }, path+"{}", inList)
	case len(s.Properties) > 0:
		check(map[string]any{})
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			property := s.Properties[field]
			w.visit(&property, func(value any) any { return wrap(map[string]any{field: value}) }, path+"."+field, inList)
		}
	default:
		for _, value := range samples(s) {
			check(value)
		}
	}
}

// samples returns a value of a scalar and, if the type has one, the empty value.
func samples(s *spec.Schema) []any {
	switch {
	case s.Format == "date-time":
		return []any{"2026-01-02T03:04:05Z"}
	case s.Format == "byte":
		return []any{"YQ==", ""}
	case s.Format == "int-or-string" || len(s.OneOf) > 0:
		return []any{"25", "1", int64(2)}
	case s.Type.Contains("string"):
		return []any{"a", ""}
	case s.Type.Contains("integer"):
		return []any{int64(1), int64(0)}
	case s.Type.Contains("boolean"):
		return []any{true, false}
	}
	return []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}}
}

func (w *listWalk) check(written any, path string) {
	content, err := json.Marshal(map[string]any{"apiVersion": w.gvk.GroupVersion().String(), "kind": w.gvk.Kind, "spec": written})
	if err != nil {
		w.t.Fatal(err)
	}
	internal, _, err := scheme.Codecs.UniversalDecoder().Decode(content, nil, nil)
	if err != nil {
		w.t.Errorf("%s: decoding %s: %v", path, content, err)
		return
	}
	encoded, err := runtime.Encode(scheme.Codecs.LegacyCodec(w.gvk.GroupVersion()), internal)
	if err != nil {
		w.t.Fatal(err)
	}
	var object, stored map[string]any
	for text, into := range map[string]*map[string]any{string(content): &object, string(encoded): &stored} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, difference := range w.differences(w.root, object["spec"], stored["spec"], "spec", false) {
		w.t.Errorf("%s: written %s: %s", path, content, difference)
	}
}

// differences returns how a stored value differs from the written one. whole is set in lists that are compared as a whole.
func (w *listWalk) differences(s *spec.Schema, written, stored any, path string, whole bool) []string {
	s = w.resolve(s)
	var out []string
	switch value := written.(type) {
	case map[string]any:
		kept, _ := stored.(map[string]any)
		if kept == nil {
			return []string{path + " is dropped"}
		}
		property := func(field string) *spec.Schema {
			if property, found := s.Properties[field]; found {
				return &property
			}
			if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
				return s.AdditionalProperties.Schema
			}
			return &spec.Schema{}
		}
		for field, inner := range value {
			if _, found := kept[field]; !found {
				out = append(out, path+"."+field+" is dropped")
				continue
			}
			out = append(out, w.differences(property(field), inner, kept[field], path+"."+field, whole)...)
		}
		for field := range kept {
			// Validation rejects an object without a required field.
			if _, found := value[field]; !found && whole && !slices.Contains(s.Required, field) && !complete.MatchString(path) {
				out = append(out, fmt.Sprintf("%s.%s = %v is added", path, field, kept[field]))
			}
		}
	case []any:
		kept, _ := stored.([]any)
		if len(kept) != len(value) || kept == nil {
			return []string{fmt.Sprintf("%s = %v, want %v", path, stored, written)}
		}
		_, merged := s.Extensions.GetString("x-kubernetes-patch-merge-key")
		for i := range value {
			out = append(out, w.differences(s.Items.Schema, value[i], kept[i], path+"[]", whole || !merged)...)
		}
	default:
		if !reflect.DeepEqual(written, stored) {
			out = append(out, fmt.Sprintf("%s = %v, want %v", path, stored, written))
		}
	}
	return out
}
