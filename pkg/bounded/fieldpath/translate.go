package fieldpath

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// ParseFields translates a JSON path into a jq path expression, since the JSON path library does
// not return the paths of values. It supports .field, ['field'], [index], [*], .* and the filter
// [?(@.field=="value")].
func ParseFields(path string) (*JQ, error) {
	if err := bounded.CheckLength(path); err != nil {
		return nil, err
	}
	translated, err := jqFromJSONPath(path)
	if err != nil {
		return nil, err
	}
	return ParseJQ(translated)
}

func jqFromJSONPath(path string) (string, error) {
	rest := strings.TrimSpace(path)
	if inner, ok := strings.CutPrefix(rest, "{"); ok {
		if rest, ok = strings.CutSuffix(inner, "}"); !ok {
			return "", fmt.Errorf("JSON path %q: missing }", path)
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
					return fail(errors.New("empty field name; recursive descent is not supported"))
				}
			case "*":
				steps = append(steps, ".[]?")
			default:
				steps = append(steps, ".["+jqQuote(name)+"]?")
			}
		case '[':
			end := closingBracket(rest)
			if end < 0 {
				return fail(errors.New("missing ]"))
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
		return fail(errors.New("must contain a field"))
	}
	return strings.Join(steps, " | "), nil
}

// closingBracket returns the index of the ] for the [ at the start of text, or -1 if there is none.
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
		return "", fmt.Errorf("[%s] must compare with a quoted string", inner)
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

// jqQuote returns text as a string literal of jq. jq has the same string syntax as JSON.
func jqQuote(text string) string {
	literal, _ := json.Marshal(text)
	return string(literal)
}
