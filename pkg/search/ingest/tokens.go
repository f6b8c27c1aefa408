package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// wordBytes bounds the length of interned words, and words bounds their number.
const (
	wordBytes = 64
	words     = 4096
)

// window limits the amount of data that a decoder reads ahead, which bounds its buffer.
type window struct {
	r    io.Reader
	json *jsontext.Decoder
	// size is the limit in bytes.
	size int64
	// read is the number of bytes read so far. left is the number of bytes that may still be read.
	read, left int64
	// err is the error that ended r.
	err error
}

func (w *window) Read(p []byte) (int, error) {
	room := w.size - (w.read - w.json.InputOffset())
	if room <= 0 {
		return 0, errWindow
	}
	if int64(len(p)) > room {
		p = p[:room]
	}
	// The decoder moves its buffer at each read, so reads of single bytes would be slow.
	n := 0
	for n < len(p) && w.err == nil {
		var more int
		more, w.err = w.r.Read(p[n:])
		n += more
	}
	w.read += int64(n)
	if w.left -= int64(n); w.left < 0 {
		return 0, fmt.Errorf("%w: the body has more than %d bytes", ErrTooLarge, w.read+w.left)
	}
	if n > 0 {
		return n, nil
	}
	return 0, w.err
}

// open enters an object or a list.
func (d *decoder) open() error {
	if _, err := d.json.ReadToken(); err != nil {
		return d.failed(err)
	}
	return nil
}

// fields reads an object. It calls read with the name of each field, in lower case, to read its value. The name is valid
// until the next read.
func (d *decoder) fields(read func(name []byte) error) error {
	if err := d.open(); err != nil {
		return err
	}
	for d.json.PeekKind() != '}' {
		raw, err := d.json.ReadValue()
		if err != nil {
			return d.failed(err)
		}
		name, err := d.unquote(raw)
		if err != nil {
			return err
		}
		// Longer names are unknown.
		d.name = append(d.name[:0], name[:min(len(name), wordBytes)]...)
		for i, c := range d.name {
			if 'A' <= c && c <= 'Z' {
				d.name[i] = c + 'a' - 'A'
			}
		}
		if err := read(d.name); err != nil {
			return err
		}
	}
	return d.open()
}

// list reads a list of objects. null is an empty list.
func (d *decoder) list(element func() error) error {
	switch d.json.PeekKind() {
	case '[':
	case 'n', 0:
		return d.skip()
	default:
		return d.shape("a list was expected")
	}
	if err := d.open(); err != nil {
		return err
	}
	for {
		var err error
		switch d.json.PeekKind() {
		case ']':
			return d.open()
		case '{':
			err = element()
		case 0:
			err = d.open()
		default:
			err = d.shape("an object was expected")
		}
		if err != nil {
			return err
		}
	}
}

// text reads a string, which is valid until the next read. null is an empty string.
func (d *decoder) text() ([]byte, error) {
	switch d.json.PeekKind() {
	case '"':
	case 'n', 0:
		return nil, d.skip()
	default:
		return nil, d.shape("a string was expected")
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return nil, d.failed(err)
	}
	return d.unquote(raw)
}

func (d *decoder) unquote(raw jsontext.Value) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1], nil
	}
	text, err := jsontext.AppendUnquote(d.scratch[:0], raw)
	if err != nil {
		return nil, d.failed(err)
	}
	d.scratch = text
	return text, nil
}

// word reads a string that usually occurs often. It cuts off a string after max+1 bytes, so that the caller can
// reject it by its length.
func (d *decoder) word(max int) (string, error) {
	text, err := d.text()
	if err != nil || len(text) == 0 {
		return "", err
	}
	if len(text) > max {
		text = text[:max+1]
	}
	if word, found := d.interned[string(text)]; found {
		return word, nil
	}
	word := string(text)
	if len(word) <= wordBytes && len(d.interned) < words {
		d.interned[word] = word
	}
	return word, nil
}

// uid reads a UID. If a resource of the report has the same UID, both share one text.
func (d *decoder) uid() (string, error) {
	text, err := d.text()
	if err != nil {
		return "", err
	}
	if at, found := d.put[string(text)]; found {
		return d.report.Put[at].UID, nil
	}
	return string(text), nil
}

// skip skips a value of any size.
func (d *decoder) skip() error {
	if err := d.json.SkipValue(); err != nil {
		return d.failed(err)
	}
	return nil
}

// shape returns the error for JSON that is not in the form of a report.
func (d *decoder) shape(message string) error {
	return &FormatError{Offset: d.json.InputOffset(), Err: errors.New(message)}
}

// failed returns the error of the decoder for an error of a read.
func (d *decoder) failed(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax):
		return &FormatError{Offset: syntax.ByteOffset, Err: syntax.Err}
	case errors.Is(err, errWindow):
		return &FormatError{Offset: d.json.InputOffset(), Err: fmt.Errorf("a value is longer than %d bytes", valueBytes)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &FormatError{Offset: d.window.read, Err: io.ErrUnexpectedEOF}
	}
	if cause := errors.Unwrap(err); cause != nil {
		// The cause is clearer without the text of the decoder.
		err = cause
	}
	return fmt.Errorf("reading the report: %w", err)
}
