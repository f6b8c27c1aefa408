package graphql

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// maxLists bounds the lists in the response to one request.
const maxLists = 10_000

// deferred contains the lists of a response that are written in the form of the engine. For each
// list, the GraphQL executor receives a list with one text, because processing each item in the
// executor would take longer than the search.
type deferred struct {
	// mark is the prefix of each of these texts. It is random, so that no data contains it.
	mark string

	lock  sync.Mutex
	lists []list
	// searches is the number of searches of the request. items is the number of items that they
	// found.
	searches, items int
}

// list is a list of items or texts.
type list struct {
	items []search.Item
	texts []string
}

type deferredKey struct{}

// withDeferred returns a context in which the lists of a request are deferred.
func withDeferred(ctx context.Context) (context.Context, *deferred) {
	d := &deferred{mark: rand.Text()}
	return context.WithValue(ctx, deferredKey{}, d), d
}

func deferredFrom(ctx context.Context) (*deferred, error) {
	if d, ok := ctx.Value(deferredKey{}).(*deferred); ok {
		return d, nil
	}
	return nil, badRequest("the field is available in queries only")
}

// addSearch counts the items of one more search. They stay in memory until the response is written,
// so the total number for all searches of a request is bounded. A single search may return all
// items.
func (d *deferred) addSearch(items int) error {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.searches++
	if d.items += items; d.searches > 1 && d.items > serving.MaxItems {
		return badRequest("the searches of one request return more than %d items in total; use separate requests or lower limits", serving.MaxItems)
	}
	return nil
}

// add returns the text that represents a list in the response of the executor.
func (d *deferred) add(l list) (string, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if len(d.lists) >= maxLists {
		return "", badRequest("the request selects more than %d lists", maxLists)
	}
	d.lists = append(d.lists, l)
	return d.mark + strconv.Itoa(len(d.lists)-1), nil
}

// write writes a response and replaces the marks with their lists.
func (d *deferred) write(to io.Writer, answer []byte) error {
	w := serving.NewWriter(to)
	err := d.append(w, answer)
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (d *deferred) append(w *serving.Writer, answer []byte) error {
	begin := []byte(`["` + d.mark)
	for {
		head, rest, found := bytes.Cut(answer, begin)
		w.Buffer = append(w.Buffer, head...)
		if !found {
			return nil
		}
		index, rest, found := bytes.Cut(rest, []byte(`"]`))
		if !found {
			return errors.New("the response continues unexpectedly after the mark of a list")
		}
		n, err := strconv.Atoi(string(index))
		if err != nil || n < 0 || n >= len(d.lists) {
			return errors.New("the response contains the mark of an unknown list")
		}
		if err := d.lists[n].append(w); err != nil {
			return err
		}
		answer = rest
	}
}

func (l *list) append(w *serving.Writer) error {
	w.Buffer = append(w.Buffer, '[')
	for i := range l.items {
		if i > 0 {
			w.Buffer = append(w.Buffer, ',')
		}
		w.Buffer = appendItem(w.Buffer, &l.items[i])
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for i, text := range l.texts {
		if i > 0 {
			w.Buffer = append(w.Buffer, ',')
		}
		w.Buffer = serving.AppendString(w.Buffer, text)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	w.Buffer = append(w.Buffer, ']')
	return nil
}
