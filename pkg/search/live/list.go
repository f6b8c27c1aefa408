package live

import (
	"context"
	"errors"
	"fmt"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// itemsAtATime is how many items are listed at a time.
const itemsAtATime = 5000

// list gives all that matches in the scope. It returns the versions of the first and of the last page; what has
// changed in between may be missing, or be there already.
func (r *run) list(ctx context.Context, each func(*search.Item) error) (first, last uint64, err error) {
	request := search.Request{Query: r.Query, Now: r.Now(), Items: true, Limit: itemsAtATime}
	for page := 0; ; page++ {
		result, err := r.Engine.Search(ctx, r.scope, &request)
		if err != nil {
			return 0, 0, fmt.Errorf("listing what is watched: %w", err)
		}
		last = result.Version
		if page == 0 {
			first = last
		}
		for i := range result.Items {
			if item := &result.Items[i]; r.Filter == nil || r.Filter(item) {
				if err := each(item); err != nil {
					return 0, 0, err
				}
			}
		}
		if result.Continue == "" {
			return first, last, nil
		}
		request.Continue = result.Continue
	}
}

// note remembers what matches, and tells nothing.
func (r *run) note(ctx context.Context) (first, last uint64, err error) {
	return r.list(ctx, func(item *search.Item) error {
		properties, err := properties(item)
		if err != nil {
			return err
		}
		return r.told.add(item.UID, item.Cluster, item.Hub, item.Version, r.pass, properties)
	})
}

// initial tells all that matches.
func (r *run) initial(ctx context.Context) error {
	first, err := r.relist(ctx)
	r.covered, r.position = first, first
	return err
}

// relist tells all that matches and the caller does not know in that state. It returns the version
// up to which it tells what has been added and modified.
func (r *run) relist(ctx context.Context) (uint64, error) {
	first, _, err := r.list(ctx, func(item *search.Item) error {
		known, was := r.told.items[item.UID]
		if was && item.Version <= known.version {
			return nil
		}
		properties, err := properties(item)
		if err != nil {
			return err
		}
		event := Event{Type: Added, Item: *item, Version: r.position}
		if was {
			event.Type = Modified
		}
		if r.position == 0 {
			event.Version = item.Version
		}
		if err := r.emit(ctx, event); err != nil {
			return err
		}
		return r.told.add(item.UID, item.Cluster, item.Hub, item.Version, r.pass, properties)
	})
	return first, err
}

// resync tells what a new scope means: first what must not be found any more, then what may be.
func (r *run) resync(ctx context.Context) error {
	r.pass++
	news := false
	first, _, err := r.list(ctx, func(item *search.Item) error {
		known, was := r.told.items[item.UID]
		if !was || known.version < item.Version {
			news = true
		}
		if was {
			known.pass = r.pass
			r.told.items[item.UID] = known
		}
		return nil
	})
	if err != nil {
		return err
	}
	for uid, known := range r.told.items {
		if known.pass == r.pass {
			continue
		}
		if err := r.emit(ctx, Event{Type: Deleted, Item: r.told.item(uid, r.position), Version: r.position}); err != nil {
			return err
		}
		r.told.remove(uid)
	}
	if news {
		if _, err := r.relist(ctx); err != nil {
			return err
		}
	}
	// What is deleted between the two listings is known from the changes after the first one.
	r.covered = max(r.covered, first)
	r.position = max(r.position, r.covered)
	return nil
}

// uninterrupted does something that a new scope interrupts, and then resync, until
// the scope stays.
func (r *run) uninterrupted(ctx context.Context, do func(context.Context) error) error {
	err := do(ctx)
	for errors.Is(err, errRescoped) {
		err = r.resync(ctx)
	}
	return err
}

func properties(item *search.Item) (query.Properties, error) {
	properties, err := query.DecodeProperties(item.JSON())
	if err != nil {
		return nil, fmt.Errorf("properties of %s: %w", item.UID, err)
	}
	return properties, nil
}
