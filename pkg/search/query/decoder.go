package query

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decoder reads the JSON of properties. It works on one string, so that values
// without escapes are pieces of it.
type decoder struct {
	text   string
	at     int
	leaves []Leaf
}

// peek is the next byte that is not white space; 0 at the end.
func (d *decoder) peek() byte {
	for d.at < len(d.text) {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			// A NUL is never valid here; it must not look like the end.
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

// members reads an object ('}') or an array (']'), and calls member for each, which
// reads the value. Names are empty in an array.
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

// scalar reads a value that is neither a string nor has others in it.
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

// appendCompact appends the next value without white space and needless escapes.
func (d *decoder) appendCompact(dst []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("offset %d: more than %d values in one another", d.at, maxDepth)
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
	// In ASCII a bracket closes two after it opens.
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
	start := d.at + 1
	for i := start; i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '"':
			d.at = i + 1
			return d.text[start:i], nil
		case c == '\\':
			d.at = i
			return d.escaped(start)
		case c < ' ':
			d.at = i
			return "", d.unexpected("a character of a string")
		}
	}
	d.at = len(d.text)
	return "", d.unexpected("the end of a string")
}

// escaped reads the rest of a string from its first escape on.
func (d *decoder) escaped(start int) (string, error) {
	var b strings.Builder
	b.WriteString(d.text[start:d.at])
	for d.at < len(d.text) {
		c := d.text[d.at]
		switch {
		case c == '"':
			d.at++
			return b.String(), nil
		case c < ' ':
			return "", d.unexpected("a character of a string")
		case c != '\\':
			b.WriteByte(c)
			d.at++
			continue
		}
		d.at++
		if d.at >= len(d.text) {
			break
		}
		switch c := d.text[d.at]; c {
		case '"', '\\', '/':
			b.WriteByte(c)
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r, err := d.unicode()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
			continue
		default:
			return "", d.unexpected("an escape")
		}
		d.at++
	}
	return "", d.unexpected("the end of a string")
}

// unicode reads the escape of a character from its u on, and that of the other half
// where it takes two. Half a character is U+FFFD.
func (d *decoder) unicode() (rune, error) {
	unit := func(at int) (rune, bool) {
		if at+5 > len(d.text) || d.text[at] != 'u' {
			return 0, false
		}
		value, err := strconv.ParseUint(d.text[at+1:at+5], 16, 16)
		return rune(value), err == nil
	}
	r, valid := unit(d.at)
	if !valid {
		return 0, d.unexpected("u with four hexadecimal digits")
	}
	d.at += 5
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if d.at < len(d.text) && d.text[d.at] == '\\' {
		if low, valid := unit(d.at + 1); valid {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				d.at += 6
				return pair, nil
			}
		}
	}
	return utf8.RuneError, nil
}
