package query

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder decodes the JSON of properties. Values without escapes are parts of one text, and share its memory.
type decoder struct {
	text   string
	json   *jsontext.Decoder
	leaves []Leaf
}

// lenient are the options for properties: the last of duplicate names takes effect, and lone surrogates become U+FFFD.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// members reads an object or an array. It calls member to read each name and value, or each element.
func (d *decoder) members(member func() error) error {
	open, err := d.json.ReadToken()
	if err != nil {
		return err
	}
	end := jsontext.Kind(']')
	if open.Kind() == '{' {
		end = '}'
	}
	for d.json.PeekKind() != end {
		if err := member(); err != nil {
			return err
		}
	}
	_, err = d.json.ReadToken()
	return err
}

// value reads a name or a value.
func (d *decoder) value() (raw string, kind jsontext.Kind, err error) {
	value, err := d.json.ReadValue()
	if err != nil {
		return "", 0, err
	}
	end := int(d.json.InputOffset())
	return d.text[end-len(value) : end], value.Kind(), nil
}

// name reads the name of a member.
func (d *decoder) name() (string, error) {
	raw, _, err := d.value()
	if err != nil {
		return "", err
	}
	return unquoted(raw)
}

// unquoted returns the text of a JSON string.
func unquoted(raw string) (text string, err error) {
	if strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	// Unlike jsontext, json.Unmarshal replaces lone surrogates with U+FFFD.
	err = json.Unmarshal([]byte(raw), &text)
	return text, err
}

// property reads the value of a property.
func (d *decoder) property(p *Property) error {
	start, sorted := len(d.leaves), true
	var err error
	switch d.json.PeekKind() {
	case '{':
		p.Type = Map
		err = d.members(func() error {
			key, err := d.name()
			if err != nil {
				return err
			}
			leaf, err := d.leaf()
			leaf.Key = key
			sorted = sorted && leaf.Type != null && (len(d.leaves) == start || d.leaves[len(d.leaves)-1].Key < key)
			d.leaves = append(d.leaves, leaf)
			return err
		})
	case '[':
		p.Type = List
		err = d.members(func() error {
			leaf, err := d.leaf()
			if leaf.Type != null {
				d.leaves = append(d.leaves, leaf)
			}
			return err
		})
	default:
		var leaf Leaf
		leaf, err = d.leaf()
		p.Type = leaf.Type
		d.leaves = append(d.leaves, leaf)
	}
	if err != nil {
		return err
	}
	if !sorted {
		kept := sortedLast(d.leaves[start:], func(l *Leaf) (string, Type) { return l.Key, l.Type })
		d.leaves = d.leaves[:start+len(kept)]
	}
	p.Leaves = d.leaves[start:len(d.leaves):len(d.leaves)]
	return nil
}

// leaf reads a single value.
func (d *decoder) leaf() (leaf Leaf, err error) {
	raw, kind, err := d.value()
	if err != nil {
		return leaf, err
	}
	switch kind {
	case '"':
		leaf.Text, err = unquoted(raw)
	case '{', '[':
		leaf.Type = JSON
		leaf.Text, err = compact(raw)
	case 'n':
		leaf.Type = null
	case 't', 'f':
		leaf.Type, leaf.Text = Bool, raw
	default:
		leaf.Type, leaf.Text = Number, raw
	}
	return leaf, err
}

// compact returns an object or an array without white space and without unnecessary escapes.
func compact(raw string) (string, error) {
	for d := jsontext.NewDecoder(strings.NewReader(raw), lenient...); ; {
		if _, err := d.ReadToken(); err != nil {
			break
		}
		if d.StackDepth() > maxDepth {
			return "", fmt.Errorf("more than %d nested values", maxDepth)
		}
	}
	text, err := jsontext.AppendFormat(nil, raw, lenient...)
	return string(text), err
}
