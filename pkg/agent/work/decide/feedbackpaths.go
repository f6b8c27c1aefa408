package decide

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
)

// FeedbackPaths are the parts of applied objects that JSON paths and CEL expressions of
// ManifestWorks may report to the hub. The zero value allows all parts. Rules of the well-known
// types are always allowed, because they report fixed fields. Each part is given by the names of nested fields.
type FeedbackPaths [][]string

// ParseFeedbackPaths parses a list of JSON paths. Each path names a field, such as .status. An
// empty list allows all parts.
func ParseFeedbackPaths(paths []string) (FeedbackPaths, error) {
	var allowed FeedbackPaths
	for _, path := range paths {
		parsed, err := fieldpath.ParseJSONPath(path)
		if err != nil {
			return nil, fmt.Errorf("allowed path %q: %w", path, err)
		}
		var fields []string
		for _, node := range parsed.Nodes() {
			field, ok := node.(*jsonpath.FieldNode)
			if !ok || field.Value == "" {
				return nil, fmt.Errorf("allowed path %q: must consist of field names, such as .status", path)
			}
			fields = append(fields, field.Value)
		}
		if len(fields) == 0 {
			return nil, fmt.Errorf("allowed path %q: must name a field", path)
		}
		allowed = append(allowed, fields)
	}
	return allowed, nil
}

// String returns the allowed paths, separated by commas.
func (f FeedbackPaths) String() string {
	paths := make([]string, len(f))
	for i, fields := range f {
		for _, name := range fields {
			paths[i] += fieldpath.Field(name)
		}
	}
	return strings.Join(paths, ", ")
}

// check returns an error if a JSON path can select a value outside the allowed parts.
func (f FeedbackPaths) check(nodes []jsonpath.Node) error {
	if len(f) > 0 && !slices.ContainsFunc(f, func(fields []string) bool { return leadsInto(nodes, fields) }) {
		return fmt.Errorf("the agent reports only fields within %s", f)
	}
	return nil
}

// leadsInto reports whether all values that a path selects are inside the field with the given
// names.
func leadsInto(nodes []jsonpath.Node, fields []string) bool {
	if len(nodes) < len(fields) {
		return false
	}
	for i, name := range fields {
		if field, ok := nodes[i].(*jsonpath.FieldNode); !ok || field.Value != name {
			return false
		}
	}
	return goesDeeper(nodes[len(fields):])
}

// goesDeeper reports whether nodes select only parts of the value to which they are applied. The
// operands of a filter can read one item of it, and never the root.
func goesDeeper(nodes []jsonpath.Node) bool {
	for _, node := range nodes {
		switch node := node.(type) {
		case *jsonpath.FieldNode, *jsonpath.ArrayNode, *jsonpath.WildcardNode, *jsonpath.RecursiveNode, *jsonpath.FilterNode:
		case *jsonpath.UnionNode:
			for _, branch := range node.Nodes {
				if !goesDeeper(branch.Nodes) {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}

// identifying are the fields that an expression can always read. The hub knows them, except for the
// generation, which only counts changes.
var identifying = [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "generation"}}

// visible returns the part of an object that an expression can read.
func (f FeedbackPaths) visible(object map[string]any) map[string]any {
	if len(f) == 0 {
		return object
	}
	visible := map[string]any{}
	for _, fields := range slices.Concat(identifying, f) {
		if value, found, err := unstructured.NestedFieldNoCopy(object, fields...); found && err == nil {
			// It fails only if a parent is not a map, and then the field is not found either.
			_ = unstructured.SetNestedField(visible, value, fields...)
		}
	}
	return visible
}
