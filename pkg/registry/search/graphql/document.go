package graphql

import "strings"

const (
	subscription = "subscription"
	// mostIntrospections bounds how often a document may ask for the members of types:
	// these have types again, and the answer grows with a power of it.
	mostIntrospections = 6
	// mostDocumentBytes and mostTokens bound a document: the executor validates all of it, with errors for each
	// token, before it looks at its own limits. Values belong into the variables.
	mostDocumentBytes = 256 << 10
	mostTokens        = 20_000
)

// document is what has to be known of a GraphQL document before it is executed.
type document struct {
	operations []operation
	// introspects is how often members of types are asked for, if types are at all.
	introspects int
	// tokens are its names, strings and signs.
	tokens int
}

// operation is one of the operations of a document.
type operation struct {
	kind, name string
}

// outline reads a document just as far as needed. It is lenient: what is wrong with a document is
// for the parser to say.
func outline(text string) document {
	var doc document
	depth, types, members := 0, false, 0
	var words []string
	for i := 0; i < len(text); {
		if c := text[i]; c > ' ' && c != '#' {
			// Commas mean nothing, but must be read.
			doc.tokens++
		}
		switch c := text[i]; {
		case c == '#':
			end := strings.IndexAny(text[i:], "\r\n")
			if end < 0 {
				end = len(text) - i
			}
			i += end
		case c == '"':
			i = afterString(text, i)
		case c == '{' || c == '(' || c == '[':
			if depth == 0 && c == '{' {
				doc.operations = appendOperation(doc.operations, words)
				words = nil
			}
			depth++
			i++
		case c == '}' || c == ')' || c == ']':
			depth--
			i++
		case nameByte(c):
			end := i + 1
			for end < len(text) && nameByte(text[end]) {
				end++
			}
			switch name := text[i:end]; name {
			case "__schema", "__type":
				types = true
			case "fields", "inputFields", "possibleTypes", "interfaces":
				members++
			default:
				if depth == 0 && len(words) < 2 {
					words = append(words, name)
				}
			}
			i = end
		default:
			i++
		}
	}
	if types {
		doc.introspects = members
	}
	return doc
}

func appendOperation(operations []operation, words []string) []operation {
	switch {
	case len(words) == 0:
		return append(operations, operation{kind: "query"})
	case words[0] == "fragment":
		return operations
	case len(words) == 1:
		return append(operations, operation{kind: words[0]})
	}
	return append(operations, operation{kind: words[0], name: words[1]})
}

// subscribes tells whether the operation with a name, or the only one, is a subscription.
func (d *document) subscribes(name string) bool {
	for _, o := range d.operations {
		if o.kind == subscription && (name == "" || o.name == name) {
			return true
		}
	}
	return false
}

func afterString(text string, i int) int {
	const block = `"""`
	if strings.HasPrefix(text[i:], block) {
		for at := i + len(block); at < len(text); at++ {
			switch {
			case strings.HasPrefix(text[at:], `\"""`):
				at += len(block)
			case strings.HasPrefix(text[at:], block):
				return at + len(block)
			}
		}
		return len(text)
	}
	for at := i + 1; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"', '\n':
			return at + 1
		}
	}
	return len(text)
}

func nameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
