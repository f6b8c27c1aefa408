package embedded

import (
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// isPlain reports whether a text is its own JSON form between quotes.
func isPlain(text string) bool {
	ascii := true
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c == '"' || c == '\\':
			return false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return ascii || utf8.ValidString(text)
}

// appendQuoted appends a text as a JSON string in the form of package query.
func appendQuoted(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}

// jsonKey returns a name as a JSON string with a colon.
func jsonKey(name string) string { return string(append(appendQuoted(nil, name), ':')) }

// object contains the properties of a row in a state.
type object struct {
	state *state
	data  string
}

// AppendJSON implements search.Object.
func (o *object) AppendJSON(dst []byte) []byte { return o.state.appendJSON(dst, o.data) }

// opening and closing are the brackets of maps and lists.
var (
	opening = [...]string{query.Map: "{", query.List: "["}
	closing = [...]string{query.Map: "}", query.List: "]"}
)

// appendJSON appends the properties of a row as a JSON object.
func (s *state) appendJSON(dst []byte, data string) []byte {
	dst = append(dst, '{')
	last, open := ^uint32(0), query.String
	for at := s.internalEnd(data); at < len(data); {
		var number uint32
		number, at = uvarint(data, at)
		t := s.terms.at(number)
		f := *s.fields.at(t.info().field())
		if f.property != last {
			if last != ^uint32(0) {
				dst = append(append(dst, closing[open]...), ',')
			}
			last, open = f.property, f.kind
			dst = append(append(dst, (*s.properties.at(last)).json...), opening[open]...)
		} else {
			dst = append(dst, ',')
		}
		if t.info().empty() {
			continue
		}
		if open == query.Map {
			dst = append(dst, f.keyJSON...)
		}
		dst = appendLeaf(dst, t)
	}
	return append(append(dst, closing[open]...), '}')
}

// appendLeaf appends a value in JSON.
func appendLeaf(dst []byte, t *term) []byte {
	switch {
	case t.info().plain():
		return append(append(append(dst, '"'), t.text...), '"')
	case t.info().leaf() == query.String:
		return appendQuoted(dst, t.text)
	default:
		return append(dst, t.text...)
	}
}

// decoded returns the properties of a row. The internal ones come first, and have the names that internalName returns.
func (s *state) decoded(data string) query.Properties {
	return s.decodeInto(&decodedMemory{}, data)
}

// decodedMemory is a buffer for the properties of one row at a time.
type decodedMemory struct {
	properties query.Properties
	leaves     []query.Leaf
}

// decodeInto is like decoded, but the properties are valid only until the memory is reused.
func (s *state) decodeInto(memory *decodedMemory, data string) query.Properties {
	count := 0
	for at := uidEnd(data); at < len(data); count++ {
		_, at = uvarint(data, at)
	}
	leaves := slices.Grow(memory.leaves[:0], count)
	properties := slices.Grow(memory.properties[:0], count)
	memory.leaves, memory.properties = leaves, properties
	last, first := ^uint32(0), 0
	for _, t := range s.termsOf(data) {
		f := s.fields.get(t.info().field())
		if f.property != last {
			last, first = f.property, len(leaves)
			p := query.Property{Name: s.properties.get(last).name, Type: f.kind}
			if f.kind < query.Map {
				p.Type = t.info().leaf()
			}
			properties = append(properties, p)
		}
		if t.info().empty() {
			continue
		}
		leaves = append(leaves, query.Leaf{Key: f.key, Type: t.info().leaf(), Text: t.text})
		properties[len(properties)-1].Leaves = leaves[first:len(leaves):len(leaves)]
	}
	return properties
}
