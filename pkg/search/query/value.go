package query

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
)

// null marks null values until they are removed.
const null Type = 255

// maxDepth bounds the nesting of values.
const maxDepth = 1000

// Get returns the property with the given name, or nil.
func (p Properties) Get(name string) *Property {
	i, found := slices.BinarySearchFunc(p, name, func(property Property, name string) int {
		return strings.Compare(property.Name, name)
	})
	if !found {
		return nil
	}
	return &p[i]
}

// DecodeProperties decodes properties from a JSON object. Objects become maps, and arrays become
// lists. Nested objects and arrays become JSON leaves. The last of duplicate names takes effect.
// Nulls are dropped. Numbers keep their text. Bytes that are not UTF-8 become U+FFFD.
//
// The result shares one copy of data, so parts that are kept for long must be cloned.
func DecodeProperties(data []byte) (Properties, error) {
	text := string(data)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		data = []byte(text)
	}
	// The number of values is at most the number of commas plus one. Commas in texts must not
	// allocate unbounded memory.
	most := min(strings.Count(text, ",")+1, 64)
	d := decoder{text: text, json: jsontext.NewDecoder(bytes.NewBuffer(data), lenient...), leaves: make([]Leaf, 0, most)}
	properties := make(Properties, 0, min(most, 32))
	sorted := true
	err := errors.New("an object is expected")
	if d.json.PeekKind() == '{' {
		err = d.members(func() error {
			name, err := d.name()
			if err != nil {
				return err
			}
			p := Property{Name: name}
			err = d.property(&p)
			sorted = sorted && p.Type != null && (len(properties) == 0 || properties[len(properties)-1].Name < name)
			properties = append(properties, p)
			return err
		})
	}
	if err == nil {
		if _, more := d.json.ReadToken(); !errors.Is(more, io.EOF) {
			err = errors.New("the end is expected")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("properties: offset %d: %w", d.json.InputOffset(), err)
	}
	if !sorted {
		properties = sortedLast(properties, func(p *Property) (string, Type) { return p.Name, p.Type })
	}
	return properties, nil
}

// sortedLast sorts by name, keeps the last element of each name, and drops nulls.
func sortedLast[S ~[]E, E any](all S, of func(*E) (string, Type)) S {
	slices.SortStableFunc(all, func(a, b E) int {
		nameA, _ := of(&a)
		nameB, _ := of(&b)
		return cmp.Compare(nameA, nameB)
	})
	kept := all[:0]
	for i := range all {
		name, t := of(&all[i])
		if i+1 < len(all) {
			if next, _ := of(&all[i+1]); next == name {
				continue
			}
		}
		if t != null {
			kept = append(kept, all[i])
		}
	}
	return kept
}

// Bytes returns the memory of the properties, without their texts.
func (p Properties) Bytes() int {
	n := len(p) * int(unsafe.Sizeof(Property{}))
	for i := range p {
		n += len(p[i].Leaves) * int(unsafe.Sizeof(Leaf{}))
	}
	return n
}

// TextBytes returns the size of the keys and texts of the properties.
func (p Properties) TextBytes() int {
	n := 0
	for i := range p {
		for _, leaf := range p[i].Leaves {
			n += len(leaf.Key) + len(leaf.Text)
		}
	}
	return n
}

// AppendJSON appends the properties as a compact JSON object, ordered by names and keys. It omits
// scalar properties without a leaf.
func (p Properties) AppendJSON(dst []byte) []byte {
	byName := func(a, b Property) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(p, byName) {
		p = slices.SortedStableFunc(slices.Values(p), byName)
	}
	dst = append(dst, '{')
	first := true
	for i := range p {
		property := &p[i]
		if property.Type < Map && len(property.Leaves) == 0 {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(appendString(dst, property.Name), ':')
		switch property.Type {
		case Map:
			dst = appendMap(dst, property.Leaves)
		case List:
			dst = append(dst, '[')
			for j := range property.Leaves {
				if j > 0 {
					dst = append(dst, ',')
				}
				dst = appendLeaf(dst, &property.Leaves[j])
			}
			dst = append(dst, ']')
		default:
			dst = appendLeaf(dst, &property.Leaves[0])
		}
	}
	return append(dst, '}')
}

func appendMap(dst []byte, leaves []Leaf) []byte {
	byKey := func(a, b Leaf) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(leaves, byKey) {
		leaves = slices.SortedStableFunc(slices.Values(leaves), byKey)
	}
	dst = append(dst, '{')
	for i := range leaves {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, leaves[i].Key), ':')
		dst = appendLeaf(dst, &leaves[i])
	}
	return append(dst, '}')
}

func appendLeaf(dst []byte, leaf *Leaf) []byte {
	if leaf.Type == String {
		return appendString(dst, leaf.Text)
	}
	return append(dst, leaf.Text...)
}

// appendString appends a text as a JSON string with as few escapes as possible. Bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}
