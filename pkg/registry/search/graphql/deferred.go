package graphql

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strconv"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

const (
	// mostLists bounds how many lists one request may have in its answer.
	mostLists = 10_000
	// flushAt is how many bytes of an answer are written at a time.
	flushAt = 128 << 10
)

// deferred are the lists of an answer that go from the engine's bytes straight to the
// response. To the executor each is a list of one text, whose place the list then
// takes: an executor that looks at each of many thousand items takes longer
// than the search.
type deferred struct {
	// mark cannot be guessed, so no data contains it.
	mark string

	lock  sync.Mutex
	lists []list
	// searches are how many have been answered, and held the items of all.
	searches, held int
}

// list is a list of items or of texts.
type list struct {
	items []search.Item
	texts []string
}

type deferredKey struct{}

// withDeferred makes the lists of a request deferred ones.
func withDeferred(ctx context.Context) (context.Context, *deferred) {
	d := &deferred{mark: rand.Text()}
	return context.WithValue(ctx, deferredKey{}, d), d
}

func deferredFrom(ctx context.Context) (*deferred, error) {
	if d, ok := ctx.Value(deferredKey{}).(*deferred); ok {
		return d, nil
	}
	return nil, badRequest("the field is for queries only")
}

// hold counts the items of one more search. They are kept until the answer is written, so
// several searches must not add up to more than a server has room for; aliases make many.
func (d *deferred) hold(items int) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.searches++
	if d.held += items; d.searches > 1 && d.held > terms.MaxItems {
		return badRequest("the searches of one request find more than %d items together; ask for them one by one, or with lower limits", terms.MaxItems)
	}
	return nil
}

// add returns what stands for a list in the answer.
func (d *deferred) add(l list) (string, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if len(d.lists) >= mostLists {
		return "", badRequest("the request asks for more than %d lists", mostLists)
	}
	d.lists = append(d.lists, l)
	return d.mark + strconv.Itoa(len(d.lists)-1), nil
}

// write writes an answer with its lists in their places.
func (d *deferred) write(w io.Writer, answer []byte) error {
	begin := []byte(`["` + d.mark)
	var out []byte
	// From the second part on there is a place among the encoders.
	var encoder terms.Encoder
	defer encoder.End()
	flush := func(least int) error {
		if len(out) < least {
			return nil
		}
		encoder.End()
		_, err := w.Write(out)
		out = out[:0]
		if least > 0 {
			encoder.Begin()
		}
		return err
	}
	for {
		at := bytes.Index(answer, begin)
		if at < 0 {
			out = append(out, answer...)
			return flush(0)
		}
		out = append(out, answer[:at]...)
		answer = answer[at+len(begin):]
		end := bytes.IndexByte(answer, '"')
		if end < 0 || end+1 >= len(answer) || answer[end+1] != ']' {
			return fmt.Errorf("the answer is not what was expected after a deferred list")
		}
		n, err := strconv.Atoi(string(answer[:end]))
		if err != nil || n < 0 || n >= len(d.lists) {
			return fmt.Errorf("the answer has an unknown deferred list")
		}
		answer = answer[end+2:]
		l := &d.lists[n]
		if out == nil && len(l.items) > 0 {
			out = make([]byte, 0, min(flushAt+flushAt/4, len(l.items)*(2*len(l.items[0].JSON())+64)))
		}
		out = append(out, '[')
		var properties []byte
		for i := range l.items {
			if i > 0 {
				out = append(out, ',')
			}
			properties = l.items[i].Object.AppendJSON(properties[:0])
			out = appendItem(out, properties, &l.items[i])
			if err := flush(flushAt); err != nil {
				return err
			}
		}
		for i, text := range l.texts {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendText(out, text)
			if err := flush(flushAt); err != nil {
				return err
			}
		}
		out = append(out, ']')
	}
}
