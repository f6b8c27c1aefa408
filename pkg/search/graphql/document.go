package graphql

import "strings"

const (
	subscription = "subscription"
	// maxIntrospections bounds the nested selections of members of types in a document. The members
	// have types as well, so the response grows exponentially.
	maxIntrospections = 6
	// maxDocumentBytes and maxTokens bound a document. The executor validates the whole document,
	// with errors for each token, before it applies its own limits. Clients should pass values as
	// variables.
	maxDocumentBytes = 256 << 10
	maxTokens        = 20_000
)

// document describes a GraphQL document before it is executed.
type document struct {
	operations []operation
	// introspects is the number of selections of members of types, if the document introspects
	// types.
	introspects int
	// tokens is the number of names, strings and punctuation characters.
	tokens int
}

// operation is one of the operations of a document.
type operation struct {
	kind, name string
}

// outline reads the operations of a document and counts tokens. It accepts invalid documents,
// because the parser reports their errors.
func outline(text string) document {
	var doc document
	depth, types, members := 0, false, 0
	var words []string
	for i := 0; i < len(text); {
		if c := text[i]; c > ' ' && c != '#' {
			// Commas have no meaning, but also take processing time.
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

// subscribes reports whether the operation with the given name, or the only operation, is a
// subscription.
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
