package work

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
)

// FeedbackPaths are the parts of applied objects that works may have reported to
// the hub by JSON paths and by CEL. The zero value allows every part. Rules of the
// well-known types are always allowed: what they report is fixed.
type FeedbackPaths struct {
	// prefixes are the allowed parts, each as the fields that lead to it.
	prefixes [][]string
	// seen are the parts that expressions see. None is in another.
	seen [][]string
}

// ParseFeedbackPaths returns what a list of JSON paths allows: the fields that
// they name, and all that is in them. None allow everything. It is an error if a
// path does not name one field by the fields that lead to it, as .status does.
func ParseFeedbackPaths(paths []string) (FeedbackPaths, error) {
	var allowed FeedbackPaths
	for _, path := range paths {
		parsed, err := fieldpath.ParseJSONPath(path)
		if err != nil {
			return FeedbackPaths{}, fmt.Errorf("allowed path %q: %w", path, err)
		}
		var fields []string
		for _, node := range parsed.Nodes() {
			field, ok := node.(*jsonpath.FieldNode)
			if !ok || field.Value == "" {
				return FeedbackPaths{}, fmt.Errorf("allowed path %q: it must consist of fields, as .status does", path)
			}
			fields = append(fields, field.Value)
		}
		if len(fields) == 0 {
			return FeedbackPaths{}, fmt.Errorf("allowed path %q: it names no field", path)
		}
		allowed.prefixes = append(allowed.prefixes, fields)
	}
	if allowed.restricted() {
		allowed.seen = outermost(slices.Concat(identifying, allowed.prefixes))
	}
	return allowed, nil
}

// outermost returns the parts that are not in another one of them.
func outermost(parts [][]string) [][]string {
	var outer [][]string
	for _, part := range slices.SortedStableFunc(slices.Values(parts), func(a, b []string) int { return cmp.Compare(len(a), len(b)) }) {
		if !slices.ContainsFunc(outer, func(o []string) bool { return slices.Equal(o, part[:len(o)]) }) {
			outer = append(outer, part)
		}
	}
	return outer
}

// String lists the allowed paths.
func (f FeedbackPaths) String() string {
	paths := make([]string, len(f.prefixes))
	for i, fields := range f.prefixes {
		paths[i] = "." + strings.Join(fields, ".")
	}
	return strings.Join(paths, ", ")
}

// restricted is whether anything is not allowed.
func (f FeedbackPaths) restricted() bool { return len(f.prefixes) > 0 }

// check returns an error if a JSON path can select anything outside of what is
// allowed.
func (f FeedbackPaths) check(nodes []jsonpath.Node) error {
	if f.restricted() && !slices.ContainsFunc(f.prefixes, func(fields []string) bool { return leadsInto(nodes, fields) }) {
		return fmt.Errorf("the agent reports only what is in %s", f)
	}
	return nil
}

// leadsInto reports whether all that a path selects is in the part of an object
// that fields lead to.
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

// goesDeeper reports whether steps select only what is in the value that they
// begin at. The operands of a filter see one item of it, and never the root.
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

// identifying are the fields that an expression may always see: the hub has
// given them itself, but for the generation, which is only a count of changes.
var identifying = [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "generation"}}

// visible returns of an object what an expression may see.
func (f FeedbackPaths) visible(object map[string]any) map[string]any {
	if !f.restricted() {
		return object
	}
	visible := map[string]any{}
	for _, fields := range f.seen {
		copyField(visible, object, fields)
	}
	return visible
}

// copyField puts the field that fields lead to from one object into another.
// The value is shared, the maps on the way to it are not.
func copyField(into, from map[string]any, fields []string) {
	value, ok := from[fields[0]]
	if !ok {
		return
	}
	if len(fields) == 1 {
		into[fields[0]] = value
		return
	}
	inner, ok := value.(map[string]any)
	if !ok {
		return
	}
	below, ok := into[fields[0]].(map[string]any)
	if !ok {
		below = map[string]any{}
		into[fields[0]] = below
	}
	copyField(below, inner, fields[1:])
}
