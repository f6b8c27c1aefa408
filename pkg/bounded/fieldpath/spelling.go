package fieldpath

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
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

// respell replaces the parts of a path or an expression that name fields in brackets, or by names with a backslash. It
// keeps string literals.
func respell(text string, write func(named) string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		part, size := named{}, 1
		switch c := text[i]; c {
		case '[':
			part, size = bracketed(text[i:])
		case '.':
			part, size = escaped(text[i:])
		case '"', '\'', '`':
			size = literal(text[i:], i > 0 && (text[i-1] == 'r' || text[i-1] == 'R'))
		case '\\':
			size = min(2, len(text)-i)
		}
		if part.names != nil {
			out.WriteString(write(part))
		} else {
			out.WriteString(text[i : i+size])
		}
		i += size
	}
	return out.String()
}

// bracketed returns the names in the brackets at the start of text, and the size of the brackets. If they contain anything
// else than quoted names, it returns no names and the size of the opening bracket.
func bracketed(text string) (named, int) {
	at := 1
	space := func() { at += len(text[at:]) - len(strings.TrimLeft(text[at:], " \t")) }
	part := named{brackets: true}
	for {
		space()
		if at == len(text) || text[at] != '\'' && text[at] != '"' {
			return named{}, 1
		}
		part.double = part.double || text[at] == '"'
		size := literal(text[at:], false)
		if size < 2 || text[at+size-1] != text[at] {
			return named{}, 1
		}
		part.names = append(part.names, unescape(text[at+1:at+size-1]))
		at += size
		space()
		switch {
		case at < len(text) && text[at] == ',':
			at++
		case at < len(text) && text[at] == ']':
			part.text = text[:at+1]
			return part, at + 1
		default:
			return named{}, 1
		}
	}
}

// escaped returns the name after the dot at the start of text if it contains a backslash, and its size with the dot.
func escaped(text string) (named, int) {
	at, found := 1, false
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if r == '\\' && at+size < len(text) {
			found = true
			_, next := utf8.DecodeRuneInString(text[at+size:])
			size += next
		} else if !isNameRune(r) {
			break
		}
		at += size
	}
	if !found {
		return named{}, 1
	}
	return named{text: text[:at], names: []string{unescape(text[1:at])}}, at
}

// literal returns the size of the string literal at the start of text. A raw literal has no escapes.
func literal(text string, raw bool) int {
	quote := text[:1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(text, triple) {
		quote = triple
	}
	for at := len(quote); at < len(text); at++ {
		switch {
		case text[at] == '\\' && !raw:
			at++
		case strings.HasPrefix(text[at:], quote):
			return at + len(quote)
		}
	}
	return len(text)
}

// isNameRune reports whether a name of a field may contain a rune without a backslash.
func isNameRune(r rune) bool {
	return r == '_' || r == '-' || r == '/' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// unescape removes the backslashes before other characters.
func unescape(text string) string {
	var name strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		name.WriteByte(text[i])
	}
	return name.String()
}

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
