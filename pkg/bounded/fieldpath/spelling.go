package fieldpath

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"unicode"
)

// The name of a field with dots has two spellings: .requests\.cpu as in kubectl, and ['requests.cpu'] as in RFC 9535.
// Users know one of them and may use both in every path. The libraries that evaluate paths understand one spelling each,
// and take the other one for other fields or reject it.

// named is a part of a path that names fields in a spelling that may have to be replaced.
type named struct {
	// text is the part as it is written.
	text string
	// names are the names of the fields, without escapes. There is one, or several in brackets.
	names []string
	// brackets is true for ['name'] and ["name"], and false for .na\.me. double is true for ["name"].
	brackets, double bool
}

// quoted matches a name in brackets, and escape a character after a backslash.
const quoted = `(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')`

var inBrackets, escape = regexp.MustCompile(`(?s)` + quoted), regexp.MustCompile(`(?s)\\(.)`)

// parts matches the parts of a path or an expression that name fields, and string literals. A literal without an end ends
// with the text. The prefix r marks a literal without escapes.
var parts = regexp.MustCompile(`(?s)` + strings.Join([]string{
	`\[[ \t]*` + quoted + `(?:[ \t]*,[ \t]*` + quoted + `)*[ \t]*\]`,
	`\.(?:\\.|[-_/\pL\p{Nd}])*`,
	`[rR]"""(?:.*?"""|.*)`, `[rR]'''(?:.*?'''|.*)`, `[rR]"[^"]*"?`, `[rR]'[^']*'?`,
	`"""(?:(?:\\.|[^\\])*?"""|.*)`, `'''(?:(?:\\.|[^\\])*?'''|.*)`,
	`"(?:\\.|[^"\\])*["\\]?`, `'(?:\\.|[^'\\])*['\\]?`, "`[^`]*`?",
	`\\.`,
}, "|"))

// respell replaces the parts of a path or an expression that name fields in brackets, or by names with a backslash. It
// keeps string literals.
func respell(text string, write func(named) string) string {
	return parts.ReplaceAllStringFunc(text, func(text string) string {
		part := named{text: text}
		switch {
		case text[0] == '[':
			part.brackets = true
			for _, name := range inBrackets.FindAllString(text, -1) {
				part.double = part.double || name[0] == '"'
				part.names = append(part.names, unescape(name[1:len(name)-1]))
			}
		case text[0] == '.' && strings.Contains(text, `\`):
			part.names = []string{unescape(text[1:])}
		default:
			return text
		}
		return write(part)
	})
}

// isNameRune reports whether a name of a field may contain a rune without a backslash.
func isNameRune(r rune) bool {
	return r == '_' || r == '-' || r == '/' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// unescape removes the backslashes before other characters.
func unescape(text string) string { return escape.ReplaceAllString(text, "$1") }

// Field returns the spelling of a field in a JSON path, .na\.me.
func Field(name string) string {
	var out strings.Builder
	out.WriteByte('.')
	for _, r := range name {
		if !isNameRune(r) {
			out.WriteByte('\\')
		}
		out.WriteRune(r)
	}
	return out.String()
}

// Template returns a JSON path as a template of k8s.io/client-go/util/jsonpath, with braces. That library reads ['a.b']
// as .a.b, and does not know ["a"].
func Template(path string) (string, error) {
	var err error
	template := respell(path, func(part named) string {
		for i, name := range part.names {
			if name == "" || strings.Contains(name, `\`) {
				err = errors.New("the name of a field must not be empty or contain a backslash")
			}
			part.names[i] = Field(name)
		}
		if len(part.names) == 1 {
			return part.names[0]
		}
		// The library takes ['a\.b'] apart like .a\.b.
		for i, name := range part.names {
			part.names[i] = "'" + name[1:] + "'"
		}
		return "[" + strings.Join(part.names, ",") + "]"
	})
	if !strings.HasPrefix(template, "{") {
		template = "{" + template + "}"
	}
	return template, err
}

// jqSpelling returns a jq expression in which field names are strings of jq.
func jqSpelling(expression string) string {
	return respell(expression, func(part named) string {
		if part.double {
			return part.text
		}
		for i, name := range part.names {
			part.names[i] = jqQuote(name)
		}
		if part.brackets {
			return "[" + strings.Join(part.names, ",") + "]"
		}
		return "." + part.names[0]
	})
}

// CEL returns a CEL expression in which object.a\.b is spelled object.`a.b`.
func CEL(expression string) string {
	return respell(expression, func(part named) string {
		switch {
		case part.brackets:
			return part.text // an index or a list
		case strings.ContainsFunc(part.names[0], func(r rune) bool { return r > unicode.MaxASCII || !isNameRune(r) && r != '.' && r != ' ' }):
			return "[" + jqQuote(part.names[0]) + "]"
		}
		return ".`" + part.names[0] + "`"
	})
}

// jqQuote returns text as a string literal of jq and CEL, which have the same syntax as JSON.
func jqQuote(text string) string {
	literal, _ := json.Marshal(text)
	return string(literal)
}
