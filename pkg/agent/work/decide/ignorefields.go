package decide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
)

// IgnoreFieldError is the error of ignoreFields that cannot be evaluated.
type IgnoreFieldError struct{ err error }

func (e *IgnoreFieldError) Error() string { return "ignoreFields: " + e.err.Error() }
func (e *IgnoreFieldError) Unwrap() error { return e.err }

// OmitIgnored removes from desired the ignored fields whose value in live differs. Fields with the
// same value stay, because server-side apply removes a field that its only manager omits. Every
// error is an IgnoreFieldError.
func OmitIgnored(ctx context.Context, budget *bounded.Budget, desired, live *unstructured.Unstructured, field workv1.IgnoreField) error {
	if err := omitIgnored(ctx, budget, desired, live, field); err != nil {
		return &IgnoreFieldError{err}
	}
	return nil
}

// IgnoresNothing returns a text that names the ignoreFields of an item that select nothing in its manifest, so that they
// have no effect. The text is empty if there are none.
func IgnoresNothing(ctx context.Context, budget *bounded.Budget, it *Item) string {
	if it.Config.Strategy.Type != workv1.UpdateStrategyTypeServerSideApply || it.Config.Strategy.ServerSideApply == nil {
		return ""
	}
	var all []string
	for _, field := range it.Config.Strategy.ServerSideApply.IgnoreFields {
		if _, empty, err := ignoredPaths(ctx, budget, it.Object, field); err == nil {
			all = append(all, empty...)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "ignoreFields have no effect on fields that the manifest does not contain. " + selectNothing(all)
}

func omitIgnored(ctx context.Context, budget *bounded.Budget, desired, live *unstructured.Unstructured, field workv1.IgnoreField) error {
	paths, _, err := ignoredPaths(ctx, budget, desired, field)
	if err != nil {
		return err
	}
	// The removal of a list item changes the indexes of the following items.
	slices.SortFunc(paths, comparePaths)
	slices.Reverse(paths)
	for _, path := range paths {
		if len(path) == 0 {
			return errors.New("the whole object cannot be ignored")
		}
		value, ok := valueAt(desired.Object, path)
		if !ok {
			continue
		}
		if other, ok := counterpartAt(live.Object, desired.Object, path); ok && holds(other, value) {
			continue
		}
		removeAt(desired.Object, path)
	}
	return nil
}

// ignoredPaths returns the paths of the ignored fields of an object, and the expressions that select none. A path may not
// exist: jq selects a field before it reads the object.
func ignoredPaths(ctx context.Context, budget *bounded.Budget, object *unstructured.Unstructured, field workv1.IgnoreField) (paths [][]any, empty []string, err error) {
	extent := bounded.ExtentOf(object.Object)
	for _, pointer := range field.JSONPointers {
		if err := budget.Spend(float64(fieldpath.ParseSteps * len(pointer))); err != nil {
			return nil, nil, notEvaluated(err)
		}
		path, err := fieldpath.ResolvePointer(object.Object, pointer)
		if err != nil {
			return nil, nil, err
		}
		if path != nil {
			paths = append(paths, path)
		} else {
			empty = append(empty, pointer)
		}
	}
	find := func(language, text string, parse func(string) (*fieldpath.JQ, error)) error {
		fail := func(err error) error { return fmt.Errorf("%s %q: %w", language, text, notEvaluated(err)) }
		if err := budget.Spend(float64(fieldpath.ParseSteps * len(text))); err != nil {
			return fail(err)
		}
		query, err := parse(text)
		if err != nil {
			return fail(err)
		}
		found, err := query.Paths(ctx, budget, object.Object, extent)
		if err != nil {
			return fail(err)
		}
		paths = append(paths, found...)
		if !slices.ContainsFunc(found, func(path []any) bool { _, exists := valueAt(object.Object, path); return exists }) {
			empty = append(empty, text)
		}
		return nil
	}
	for _, path := range field.JSONPaths {
		if err := find("JSON path", path, fieldpath.ParseFields); err != nil {
			return nil, nil, err
		}
	}
	for _, expression := range field.JQPathExpressions {
		if err := find("jq path expression", expression, fieldpath.ParseJQ); err != nil {
			return nil, nil, err
		}
	}
	return paths, empty, nil
}

func valueAt(object any, path []any) (any, bool) {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, ok := object.(map[string]any)
			if !ok {
				return nil, false
			}
			if object, ok = fields[step]; !ok {
				return nil, false
			}
		case int:
			list, ok := object.([]any)
			if !ok || step < 0 || step >= len(list) {
				return nil, false
			}
			object = list[step]
		default:
			return nil, false
		}
	}
	return object, true
}

// counterpartAt returns the value in live for a path in desired. It finds named list items by their
// name.
func counterpartAt(live, desired any, path []any) (any, bool) {
	for _, step := range path {
		item, ok := valueAt(desired, []any{step})
		if !ok {
			return nil, false
		}
		if _, isIndex := step.(int); isIndex {
			if fields, isMap := item.(map[string]any); isMap && fields["name"] != nil {
				step = indexOfName(live, fields["name"])
			}
		}
		if live, ok = valueAt(live, []any{step}); !ok {
			return nil, false
		}
		desired = item
	}
	return live, true
}

func indexOfName(list, name any) int {
	items, _ := list.([]any)
	for i, item := range items {
		if fields, ok := item.(map[string]any); ok && fields["name"] == name {
			return i
		}
	}
	return -1
}

// removeAt removes the value at a path, which must exist.
func removeAt(object map[string]any, path []any) {
	parent, last := path[:len(path)-1], path[len(path)-1]
	holder, _ := valueAt(object, parent)
	switch holder := holder.(type) {
	case map[string]any:
		delete(holder, last.(string))
	case []any:
		index := last.(int)
		shorter := slices.Delete(slices.Clone(holder), index, index+1)
		grand, _ := valueAt(object, parent[:len(parent)-1])
		switch grand := grand.(type) {
		case map[string]any:
			grand[parent[len(parent)-1].(string)] = shorter
		case []any:
			grand[parent[len(parent)-1].(int)] = shorter
		}
	}
}

func comparePaths(a, b []any) int {
	for i := range min(len(a), len(b)) {
		var order int
		switch x := a[i].(type) {
		case int:
			if y, ok := b[i].(int); ok {
				order = cmp.Compare(x, y)
			}
		case string:
			if y, ok := b[i].(string); ok {
				order = cmp.Compare(x, y)
			}
		}
		if order != 0 {
			return order
		}
	}
	return cmp.Compare(len(a), len(b))
}
