package serving

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
)

// Lists are the lists of a response that are written in the form of the engine. The generic encoder receives a list with
// one place instead of each, because encoding each item would take longer than the search, and all items more memory.
type Lists struct {
	// mark is the prefix of each place. It is random, so that no data contains it. before and after enclose a place in
	// the encoded response.
	mark, before, after string
	lists               []list
}

// list is a list of n elements, which element appends.
type list struct {
	n       int
	element func(dst []byte, i int) []byte
}

// NewLists returns Lists. In the encoded response, a list with one place begins with before, and ends with after.
func NewLists(before, after string) *Lists {
	return &Lists{mark: rand.Text(), before: before, after: after}
}

// Len returns the number of lists.
func (l *Lists) Len() int { return len(l.lists) }

// Add adds a list of n elements, which element appends. It returns the place of the list.
func (l *Lists) Add(n int, element func(dst []byte, i int) []byte) (place string) {
	l.lists = append(l.lists, list{n, element})
	return l.mark + strconv.Itoa(len(l.lists)-1)
}

// Write writes an encoded response, with each list in its place.
func (l *Lists) Write(to io.Writer, encoded []byte) error {
	w := NewWriter(to)
	err := l.write(w, encoded)
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (l *Lists) write(w *Writer, encoded []byte) error {
	before, after := []byte(l.before+l.mark), []byte(l.after)
	for {
		head, rest, found := bytes.Cut(encoded, before)
		w.Buffer = append(w.Buffer, head...)
		if !found {
			return nil
		}
		index, rest, found := bytes.Cut(rest, after)
		n, err := strconv.Atoi(string(index))
		if !found || err != nil || n < 0 || n >= len(l.lists) {
			return errors.New("the response contains the mark of an unknown list")
		}
		w.Buffer = append(w.Buffer, '[')
		for i := range l.lists[n].n {
			if i > 0 {
				w.Buffer = append(w.Buffer, ',')
			}
			w.Buffer = l.lists[n].element(w.Buffer, i)
			if err := w.Flush(); err != nil {
				return err
			}
		}
		w.Buffer = append(w.Buffer, ']')
		encoded = rest
	}
}
