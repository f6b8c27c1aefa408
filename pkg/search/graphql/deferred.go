package graphql

import (
	"context"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
)

// maxLists bounds the lists in the response to one request.
const maxLists = 10_000

// deferred contains the lists of a response, which the executor does not process.
type deferred struct {
	lock  sync.Mutex
	lists *serving.Lists
	// searches is the number of searches of the request. items is the number of items that they
	// found.
	searches, items int
}

type deferredKey struct{}

// withDeferred returns a context in which the lists of a request are deferred.
func withDeferred(ctx context.Context) (context.Context, *deferred) {
	d := &deferred{lists: serving.NewLists(`["`, `"]`)}
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

// add adds a list, and returns its place in the response of the executor.
func (d *deferred) add(n int, element func(dst []byte, i int) []byte) (string, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.lists.Len() >= maxLists {
		return "", badRequest("the request selects more than %d lists", maxLists)
	}
	return d.lists.Add(n, element), nil
}
