package work

import "cmp"

// valueAt returns the value at a path.
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

// counterpartAt returns the value in live of what is at path in desired: the
// same path, but an item of a list is found by its name if it has one.
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

// removeAt removes the value at a path, which exists.
func removeAt(object map[string]any, path []any) {
	parent, last := path[:len(path)-1], path[len(path)-1]
	holder, _ := valueAt(object, parent)
	switch holder := holder.(type) {
	case map[string]any:
		delete(holder, last.(string))
	case []any:
		index := last.(int)
		shorter := append(append([]any{}, holder[:index]...), holder[index+1:]...)
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
