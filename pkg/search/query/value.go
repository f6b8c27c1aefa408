package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// null marks values of null until they are dropped.
const null Type = 255

// maxDepth bounds how deep values may be nested.
const maxDepth = 1000

// Get is the property of a name; nil if there is none.
func (p Properties) Get(name string) *Property {
	i, found := slices.BinarySearchFunc(p, name, func(property Property, name string) int {
		return strings.Compare(property.Name, name)
	})
	if !found {
		return nil
	}
	return &p[i]
}

// DecodeProperties reads properties from a JSON object. Objects become maps and arrays lists; what
// is nested in these becomes JSON leaves. Of names that occur twice the last counts. A null is as
// if it were not there. Numbers keep their text. Bytes that are not UTF-8 become U+FFFD.
//
// The result shares one copy of data; clone what is to be kept longer than the rest.
func DecodeProperties(data []byte) (Properties, error) {
	text := string(data)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	// There is at most one value more than commas, but commas in texts must not
	// reserve memory without bound.
	most := min(strings.Count(text, ",")+1, 64)
	d := decoder{text: text, leaves: make([]Leaf, 0, most)}
	properties := make(Properties, 0, min(most, 32))
	sorted := true
	err := d.members('}', func(name string) error {
		p := Property{Name: name}
		if err := d.property(&p); err != nil {
			return err
		}
		sorted = sorted && p.Type != null && (len(properties) == 0 || properties[len(properties)-1].Name < name)
		properties = append(properties, p)
		return nil
	})
	if err == nil && d.peek() != 0 {
		err = d.unexpected("the end")
	}
	if err != nil {
		return nil, fmt.Errorf("properties: %w", err)
	}
	if !sorted {
		properties = sortedLast(properties, func(p *Property) (string, Type) { return p.Name, p.Type })
	}
	return properties, nil
}

// sortedLast sorts by name, keeps the last of each name, and drops nulls.
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

// AppendJSON appends the properties as a compact JSON object, in the order of names
// and keys. Properties of a scalar type without a leaf are left out.
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

// appendString appends a text as a JSON string in which only what must be escaped is.
func appendString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, text[done:i]...), "\uFFFD"...)
				done = i + 1
			}
			i += size
			continue
		}
		i++
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(append(dst, text[done:i-1]...), '\\')
		done = i
		switch c {
		case '"', '\\':
			dst = append(dst, c)
		case '\b':
			dst = append(dst, 'b')
		case '\f':
			dst = append(dst, 'f')
		case '\n':
			dst = append(dst, 'n')
		case '\r':
			dst = append(dst, 'r')
		case '\t':
			dst = append(dst, 't')
		default:
			dst = append(dst, 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, text[done:]...), '"')
}
