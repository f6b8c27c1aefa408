package watch

import (
	"context"
	"errors"
	"fmt"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// pageSize is the number of items per page of a listing.
const pageSize = 5000

// list calls each for all matches in the scope. It returns the versions of the first and of the
// last page. The listing may or may not include changes between these versions.
func (r *run) list(ctx context.Context, each func(*search.Item) error) (first, last uint64, err error) {
	request := search.Request{Query: r.Query, Now: r.Now(), Items: true, Limit: pageSize}
	for page := 0; ; page++ {
		result, err := r.Engine.Search(ctx, r.scope, &request)
		if err != nil {
			return 0, 0, fmt.Errorf("listing the matches of the watch: %w", err)
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

// record records all matches as known to the client, without events.
func (r *run) record(ctx context.Context) (first, last uint64, err error) {
	return r.list(ctx, func(item *search.Item) error {
		return r.sent.add(item.UID, item.Cluster, item.Hub, item.Version, r.pass, identifying(item.JSON()))
	})
}

// initial sends all matches.
func (r *run) initial(ctx context.Context) error {
	first, err := r.relist(ctx)
	r.covered, r.position = first, first
	return err
}

// relist sends all matches whose current state the client does not know. It returns the version up
// to which additions and modifications are complete.
func (r *run) relist(ctx context.Context) (uint64, error) {
	first, _, err := r.list(ctx, func(item *search.Item) error {
		known, was := r.sent.items[item.UID]
		if was && item.Version <= known.version {
			return nil
		}
		// The receiver needs the encoded properties as well.
		encoded := search.JSON(item.JSON())
		event := Event{Type: Added, Item: *item, Version: r.position}
		event.Item.Object = encoded
		if was {
			event.Type = Modified
		}
		if r.position == 0 {
			event.Version = item.Version
		}
		if err := r.emit(ctx, event); err != nil {
			return err
		}
		return r.sent.add(item.UID, item.Cluster, item.Hub, item.Version, r.pass, identifying(encoded))
	})
	return first, err
}

// resync sends the events that result from a new scope: first deletions, then additions.
func (r *run) resync(ctx context.Context) error {
	r.pass++
	news := false
	first, _, err := r.list(ctx, func(item *search.Item) error {
		known, was := r.sent.items[item.UID]
		if !was || known.version < item.Version {
			news = true
		}
		if was {
			known.pass = r.pass
			r.sent.items[item.UID] = known
		}
		return nil
	})
	if err != nil {
		return err
	}
	for uid, known := range r.sent.items {
		if known.pass == r.pass {
			continue
		}
		if err := r.emit(ctx, Event{Type: Deleted, Item: r.sent.item(uid, r.position), Version: r.position}); err != nil {
			return err
		}
		r.sent.remove(uid)
	}
	if news {
		if _, err := r.relist(ctx); err != nil {
			return err
		}
	}
	// Changes after the first listing include deletions between the two listings.
	r.covered = max(r.covered, first)
	r.position = max(r.position, r.covered)
	return nil
}

// uninterrupted calls do. Whenever a new scope interrupts it, uninterrupted calls resync.
func (r *run) uninterrupted(ctx context.Context, do func(context.Context) error) error {
	err := do(ctx)
	for errors.Is(err, errRescoped) {
		err = r.resync(ctx)
	}
	return err
}
