package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// pageSize is the number of items per page of a listing.
const pageSize = 5000

// maxChunk and chunkBytes bound the resources that are read to be sent. A watch holds them while its client does not
// read.
const (
	maxChunk   = 64
	chunkBytes = 256 << 10
)

// list calls each for all matches in the scope, and then flush for each page. It returns the versions of the first
// and of the last page. The listing may or may not include changes between these versions. It does not keep the
// items of a page, which may keep an old state of the engine in memory, while flush runs.
func (r *run) list(ctx context.Context, each func(*search.Item) error, flush func() error) (first, last uint64, err error) {
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
		request.Continue = result.Continue
		if flush != nil {
			if err := flush(); err != nil {
				return 0, 0, err
			}
		}
		if request.Continue == "" {
			return first, last, nil
		}
	}
}

// record records all matches as known to the client, without events.
func (r *run) record(ctx context.Context) (first, last uint64, err error) {
	return r.list(ctx, func(item *search.Item) error {
		return r.sent.add(item.UID, item.Cluster, item.Hub, item.Version, r.pass, identifying(item.JSON()))
	}, nil)
}

// initial sends all matches.
func (r *run) initial(ctx context.Context) error {
	first, err := r.relist(ctx)
	r.covered, r.position = first, first
	return err
}

// listed is a resource of a page that is to be sent.
type listed struct {
	uid     string
	version uint64
}

// relist sends all matches whose current state the client does not know. It returns the version up
// to which additions and modifications are complete.
func (r *run) relist(ctx context.Context) (uint64, error) {
	held := r.sent.share.empty()
	defer held.release()
	var page []listed
	first, _, err := r.list(ctx, func(item *search.Item) error {
		if known, was := r.sent.items[item.UID]; was && item.Version <= known.version {
			return nil
		}
		// The text may be a part of a whole response, which would then stay in memory.
		one := listed{uid: strings.Clone(item.UID), version: item.Version}
		page = append(page, one)
		return held.grow(int64(listedBytes + len(one.uid)))
	}, func() error {
		for rest := page; len(rest) > 0; {
			n, err := r.sendCurrent(ctx, rest[:min(maxChunk, len(rest))])
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
		page = nil
		held.release()
		return nil
	})
	return first, err
}

// sendCurrent sends the current state of the first resources of a listing. It returns their number.
func (r *run) sendCurrent(ctx context.Context, chunk []listed) (int, error) {
	uids, versions := make([]string, len(chunk)), make(map[string]uint64, len(chunk))
	for i := range chunk {
		uids[i], versions[chunk[i].uid] = chunk[i].uid, chunk[i].version
	}
	items, err := r.Engine.GetMany(ctx, r.scope, uids)
	if err != nil {
		return 0, fmt.Errorf("reading the matches of the watch: %w", err)
	}
	held := r.sent.share.empty()
	defer held.release()
	sent := len(chunk)
	for i, bytes := 0, 0; i < len(items); i++ {
		if bytes >= chunkBytes {
			// The rest of the items is read again, when the client has received these.
			sent = max(1, slices.Index(uids, items[i].UID))
			clear(items[i:])
			items = items[:i]
			break
		}
		encoded := search.JSON(items[i].JSON())
		items[i].Object = encoded
		bytes += len(encoded)
		if err := held.grow(int64(len(encoded))); err != nil {
			return 0, err
		}
	}
	for i := range items {
		item := items[i]
		items[i] = search.Item{}
		held.shrink(int64(len(item.JSON())))
		if err := r.sendItem(ctx, item, versions[item.UID]); err != nil {
			return 0, err
		}
	}
	return sent, nil
}

// sendItem sends the current state of a resource, unless it has changed since the listing and no longer matches. In
// that case, the change is not yet covered.
func (r *run) sendItem(ctx context.Context, item search.Item, version uint64) error {
	encoded := item.JSON()
	if item.Version != version {
		properties, err := query.DecodeProperties(encoded)
		if err != nil {
			return err
		}
		if matches, err := r.matches(ctx, item.Cluster, properties); err != nil || !matches || r.Filter != nil && !r.Filter(&item) {
			return err
		}
	}
	known, was := r.sent.items[item.UID]
	if was && item.Version <= known.version {
		return nil
	}
	event := Event{Type: Added, Item: item, Version: r.position}
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
	}, nil)
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
