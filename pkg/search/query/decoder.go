package query

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// decoder decodes the JSON of properties. It works on one string, so that values without escapes
// share the string.
type decoder struct {
	text   string
	at     int
	leaves []Leaf
}

// peek returns the next byte that is not white space, or 0 at the end.
func (d *decoder) peek() byte {
	for d.at < len(d.text) {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			// A NUL is never valid here, and must not be mistaken for the end.
			return max(c, 1)
		}
	}
	return 0
}

func (d *decoder) unexpected(want string) error {
	if d.at >= len(d.text) {
		return fmt.Errorf("offset %d: the text ends where %s is expected", d.at, want)
	}
	r, _ := utf8.DecodeRuneInString(d.text[d.at:])
	return fmt.Errorf("offset %d: %q where %s is expected", d.at, r, want)
}

// members reads an object ('}') or an array (']'). It calls member to read the value of each
// member. Names are empty in an array.
func (d *decoder) members(end byte, member func(name string) error) error {
	open, what := byte('{'), "an object"
	if end == ']' {
		open, what = '[', "an array"
	}
	if d.peek() != open {
		return d.unexpected(what)
	}
	d.at++
	if d.peek() == end {
		d.at++
		return nil
	}
	for {
		name := ""
		if end == '}' {
			if d.peek() != '"' {
				return d.unexpected("a name")
			}
			var err error
			if name, err = d.str(); err != nil {
				return err
			}
			if d.peek() != ':' {
				return d.unexpected("a colon")
			}
			d.at++
		}
		if err := member(name); err != nil {
			return err
		}
		switch d.peek() {
		case ',':
			d.at++
		case end:
			d.at++
			return nil
		default:
			return d.unexpected("a comma or the end of " + what)
		}
	}
}

// property reads the value of a property.
func (d *decoder) property(p *Property) error {
	start, sorted := len(d.leaves), true
	var err error
	switch d.peek() {
	case '{':
		p.Type = Map
		err = d.members('}', func(key string) error {
			leaf := Leaf{Key: key}
			if err := d.leaf(&leaf); err != nil {
				return err
			}
			sorted = sorted && leaf.Type != null && (len(d.leaves) == start || d.leaves[len(d.leaves)-1].Key < key)
			d.leaves = append(d.leaves, leaf)
			return nil
		})
	case '[':
		p.Type = List
		err = d.members(']', func(string) error {
			var leaf Leaf
			if err := d.leaf(&leaf); err != nil {
				return err
			}
			if leaf.Type != null {
				d.leaves = append(d.leaves, leaf)
			}
			return nil
		})
	default:
		var leaf Leaf
		err = d.leaf(&leaf)
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
func (d *decoder) leaf(l *Leaf) error {
	var err error
	switch c := d.peek(); c {
	case '"':
		l.Text, err = d.str()
		return err
	case '{', '[':
		l.Type = JSON
		var compact []byte
		if compact, err = d.appendCompact(nil, 1); err != nil {
			return err
		}
		l.Text = string(compact)
		return nil
	default:
		l.Text, l.Type, err = d.scalar()
		return err
	}
}

// scalar reads a value that is neither a string, an object nor an array.
func (d *decoder) scalar() (string, Type, error) {
	rest := d.text[d.at:]
	length, t := 0, Bool
	switch {
	case strings.HasPrefix(rest, "true"):
		length = len("true")
	case strings.HasPrefix(rest, "false"):
		length = len("false")
	case strings.HasPrefix(rest, "null"):
		length, t = len("null"), null
	default:
		length, t = numberLength(rest), Number
	}
	if length == 0 {
		return "", t, d.unexpected("a value")
	}
	d.at += length
	return rest[:length], t, nil
}

// appendCompact appends the next value without white space and without unnecessary escapes.
func (d *decoder) appendCompact(dst []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("offset %d: more than %d nested values", d.at, maxDepth)
	}
	c := d.peek()
	switch c {
	case '"':
		text, err := d.str()
		return appendString(dst, text), err
	case '{', '[':
	default:
		text, _, err := d.scalar()
		return append(dst, text...), err
	}
	// In ASCII, the closing bracket is the opening bracket plus two.
	end := c + 2
	dst = append(dst, c)
	first := true
	err := d.members(end, func(name string) error {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if end == '}' {
			dst = append(appendString(dst, name), ':')
		}
		var err error
		dst, err = d.appendCompact(dst, depth+1)
		return err
	})
	return append(dst, end), err
}

// str reads a string.
func (d *decoder) str() (string, error) {
	start, escaped := d.at, false
	for i := start + 1; i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '"' && !escaped:
			d.at = i + 1
			return d.text[start+1 : i], nil
		case c == '"':
			// Unlike jsontext, json.Unmarshal replaces lone surrogates with U+FFFD.
			var text string
			if err := json.Unmarshal([]byte(d.text[start:i+1]), &text); err != nil {
				return "", fmt.Errorf("offset %d: invalid string: %w", start, err)
			}
			d.at = i + 1
			return text, nil
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			d.at = i
			return "", d.unexpected("a character of a string")
		}
	}
	d.at = len(d.text)
	return "", d.unexpected("the end of a string")
}
