package work

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

// jqTimeout bounds the evaluation of one expression.
const jqTimeout = time.Second

// jqPaths evaluates a jq path expression and returns the paths it selects.
func jqPaths(ctx context.Context, expression string, object map[string]any) ([][]any, error) {
	query, err := gojq.Parse("path(" + expression + ")")
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(query, gojq.WithEnvironLoader(func() []string { return nil }))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, jqTimeout)
	defer cancel()
	results := code.RunWithContext(ctx, jqInput(object))
	var paths [][]any
	for {
		result, more := results.Next()
		if !more {
			return paths, nil
		}
		switch result := result.(type) {
		case error:
			return nil, result
		case []any:
			paths = append(paths, result)
		default:
			return nil, fmt.Errorf("unexpected path %v", result)
		}
	}
}

// jqInput returns a copy of a JSON value in the number types that gojq takes.
func jqInput(value any) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for key, child := range value {
			result[key] = jqInput(child)
		}
		return result
	case []any:
		result := make([]any, len(value))
		for i, child := range value {
			result[i] = jqInput(child)
		}
		return result
	case int64:
		return int(value)
	}
	return value
}

// pointerPath resolves a JSON pointer (RFC 6901); nil if it points to nothing.
func pointerPath(object map[string]any, pointer string) ([]any, error) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, fmt.Errorf("JSON pointer %q does not begin with /", pointer)
	}
	var path []any
	var at any = object
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch value := at.(type) {
		case map[string]any:
			child, ok := value[token]
			if !ok {
				return nil, nil
			}
			path, at = append(path, token), child
		case []any:
			index, err := strconv.Atoi(token)
			if err != nil || index < 0 || index >= len(value) {
				return nil, nil
			}
			path, at = append(path, index), value[index]
		default:
			return nil, nil
		}
	}
	return path, nil
}

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

// jqFromJSONPath translates the part of JSONPath that names fields into jq,
// which, unlike the JSONPath library, can say where a value is. It knows
// .field, ['field'], [index], [*], .* and the filter [?(@.field=="value")].
func jqFromJSONPath(path string) (string, error) {
	rest := strings.TrimSpace(path)
	if inner, ok := strings.CutPrefix(rest, "{"); ok {
		if rest, ok = strings.CutSuffix(inner, "}"); !ok {
			return "", fmt.Errorf("JSON path %q: { is not closed", path)
		}
	}
	rest = strings.TrimPrefix(rest, "$")
	if rest != "" && rest[0] != '.' && rest[0] != '[' {
		rest = "." + rest
	}
	fail := func(err error) (string, error) { return "", fmt.Errorf("JSON path %q: %w", path, err) }
	steps := []string{"."}
	for rest != "" {
		switch rest[0] {
		case '.':
			end := len(rest)
			if i := strings.IndexAny(rest[1:], ".["); i >= 0 {
				end = i + 1
			}
			name := rest[1:end]
			rest = rest[end:]
			switch name {
			case "":
				if rest == "" || rest[0] != '[' {
					return fail(errors.New("an empty step; recursive descent is not supported"))
				}
			case "*":
				steps = append(steps, ".[]?")
			default:
				steps = append(steps, ".["+jqQuote(name)+"]?")
			}
		case '[':
			end := closingBracket(rest)
			if end < 0 {
				return fail(errors.New("[ is not closed"))
			}
			step, err := jqFromBracket(strings.TrimSpace(rest[1:end]))
			if err != nil {
				return fail(err)
			}
			steps = append(steps, step)
			rest = rest[end+1:]
		}
	}
	if len(steps) == 1 {
		return fail(errors.New("it names no field"))
	}
	return strings.Join(steps, " | "), nil
}

// closingBracket returns the index of the ] that closes the [ at the start of
// text, and -1 if there is none.
func closingBracket(text string) int {
	var quote rune
	for i, c := range text {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == ']':
			return i
		}
	}
	return -1
}

func jqFromBracket(inner string) (string, error) {
	if inner == "*" {
		return ".[]?", nil
	}
	if index, err := strconv.Atoi(inner); err == nil {
		return ".[" + strconv.Itoa(index) + "]?", nil
	}
	if name, ok := unquote(inner); ok {
		return ".[" + jqQuote(name) + "]?", nil
	}
	filter, ok := strings.CutPrefix(inner, "?(@.")
	if !ok {
		return "", fmt.Errorf("[%s] is not supported", inner)
	}
	filter, ok = strings.CutSuffix(filter, ")")
	field, value, found := strings.Cut(filter, "==")
	if !ok || !found {
		return "", fmt.Errorf("[%s] is not supported", inner)
	}
	text, ok := unquote(strings.TrimSpace(value))
	if !ok {
		return "", fmt.Errorf("[%s] does not compare with a quoted text", inner)
	}
	selector := "."
	for name := range strings.SplitSeq(strings.TrimSpace(field), ".") {
		selector += " | .[" + jqQuote(name) + "]?"
	}
	return ".[]? | select((" + selector + ") == " + jqQuote(text) + ")", nil
}

func unquote(text string) (string, bool) {
	if len(text) >= 2 && (text[0] == '\'' || text[0] == '"') && text[len(text)-1] == text[0] {
		return text[1 : len(text)-1], true
	}
	return "", false
}

// jqQuote returns text as a string literal of jq, which is that of JSON.
func jqQuote(text string) string {
	literal, _ := json.Marshal(text)
	return string(literal)
}
