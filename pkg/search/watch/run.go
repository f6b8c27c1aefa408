package watch

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/util/wait"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// maxChanges and maxChangesBytes bound the changes per read from the engine. A watch holds them while its client
	// does not read.
	maxChanges      = 100
	maxChangesBytes = 256 << 10
	// scopeAge is the maximum age of the scope that decides about an event, unless a change was
	// announced. scopePoll is the interval of additional checks of the scope.
	scopeAge  = 10 * time.Millisecond
	scopePoll = 500 * time.Millisecond
	// fetchTimeout bounds the wait for changes.
	fetchTimeout = 10 * time.Second
)

// errRescoped interrupts work that used a previous scope.
var errRescoped = errors.New("the scope has changed")

// run is the state of a watch. Only one goroutine uses it.
type run struct {
	Config
	events chan<- Event
	// terms is the number of keywords and values of the query.
	terms int

	changed <-chan struct{}
	poll    *time.Ticker
	scope   visibility.Scope
	scoped  time.Time

	// batch is the memory of the changes that were read and are not all sent.
	batch *share
	sent  sentItems
	pass  uint32
	// covered is the version up to which the last listing is complete. position is the version of
	// the last event.
	covered, position uint64
	bookmarked        uint64
}

// batch contains changes of the engine.
type batch struct {
	changes []search.Change
	// next is the position after the changes.
	next search.Position
	err  error
}

func (r *run) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var fetching wait.Group
	defer func() {
		fetching.Wait()
		r.batch.release()
		r.sent.share.release()
	}()
	defer cancel()

	changed, stop := r.Scopes.Subscribe(r.User)
	defer stop()
	r.changed = changed
	r.poll = time.NewTicker(wait.Jitter(scopePoll, 0.2))
	defer r.poll.Stop()
	bookmarks := time.NewTicker(wait.Jitter(r.BookmarkEvery, 0.1))
	defer bookmarks.Stop()

	if err := r.sent.share.grow(watchBytes); err != nil {
		return err
	}
	if err := r.rescope(ctx); err != nil && !errors.Is(err, errRescoped) {
		return err
	}
	after, err := r.begin(ctx)
	if err != nil {
		return err
	}
	batches := make(chan batch)
	// The next changes are read after the events of the last ones are sent, so that a slow client leaves them in the
	// log of the engine.
	fetch := func(after search.Position) {
		fetching.StartWithContext(ctx, func(ctx context.Context) {
			select {
			case batches <- r.fetch(ctx, after):
			case <-ctx.Done():
			}
		})
	}
	fetch(search.Position{Version: after})
	for {
		// A change of the scope takes precedence over changes.
		select {
		case <-r.changed:
			if err := r.refresh(ctx); err != nil {
				return err
			}
		default:
		}
		var err error
		select {
		case b := <-batches:
			if err = r.apply(ctx, b); err == nil {
				r.batch.release()
				fetch(b.next)
			}
		case <-r.changed:
			err = r.refresh(ctx)
		case <-r.poll.C:
			err = r.refresh(ctx)
		case <-bookmarks.C:
			if r.position > r.bookmarked {
				err = r.bookmark(ctx, false)
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// begin sends or records the current matches. It returns the version after which changes are
// required.
func (r *run) begin(ctx context.Context) (uint64, error) {
	if r.Initial {
		if err := r.uninterrupted(ctx, r.initial); err != nil {
			return 0, err
		}
		// A new scope may increase covered while the bookmark waits. Changes that are read twice
		// are sent only once.
		after := r.covered
		return after, r.bookmark(ctx, true)
	}
	first, last, err := r.record(ctx)
	if err != nil {
		return 0, err
	}
	after := r.From
	if after == 0 {
		after = first
	}
	r.position, r.bookmarked = after, after
	return after, r.rewind(ctx, after, last)
}

// fetch reads the changes after a position. It waits until there is a later position.
func (r *run) fetch(ctx context.Context, after search.Position) batch {
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Steps: 8, Cap: time.Second}
	for {
		// If there are no changes, the version alone is passed on, so that bookmarks continue.
		b := r.read(ctx, after, fetchTimeout)
		if b.err != nil || b.next != after {
			return b
		}
		// An engine may wait for less time than requested.
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return batch{err: ctx.Err()}
		}
	}
}

func (r *run) read(ctx context.Context, after search.Position, timeout time.Duration) batch {
	reading, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changes, next, err := r.Engine.Changes(reading, after, maxChanges, maxChangesBytes)
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		return batch{next: after}
	}
	bytes := 0
	for i := range changes {
		bytes += changes[i].Bytes + int(unsafe.Sizeof(changes[i]))
	}
	if err == nil {
		err = r.batch.grow(int64(bytes))
	}
	return batch{changes: changes, next: next, err: err}
}

// apply sends the events for a batch of changes.
func (r *run) apply(ctx context.Context, b batch) error {
	if b.err != nil {
		return fmt.Errorf("reading changes: %w", b.err)
	}
	for i := range b.changes {
		// The batch may be long, and most of its changes may not match.
		if err := ctx.Err(); err != nil {
			return err
		}
		change := &b.changes[i]
		err := r.change(ctx, change)
		for errors.Is(err, errRescoped) {
			if err = r.uninterrupted(ctx, r.resync); err != nil {
				return err
			}
			err = r.change(ctx, change)
		}
		if err != nil {
			return err
		}
	}
	r.position = max(r.position, b.next.Version)
	return nil
}

// change sends the event for one change, unless a listing already includes it.
func (r *run) change(ctx context.Context, change *search.Change) error {
	known, was := r.sent.items[change.UID]
	if change.Version <= r.covered || was && change.Version <= known.version {
		return nil
	}
	item, is, err := r.after(ctx, change)
	switch {
	case err != nil:
		return err
	case is:
		if err := r.emit(ctx, r.put(change, item, was)); err != nil {
			return err
		}
		return r.sent.add(change.UID, change.Cluster, change.Hub, change.Version, r.pass, change.After)
	case was:
		if err := r.emit(ctx, r.gone(change, r.sent.item(change.UID, change.Version))); err != nil {
			return err
		}
		r.sent.remove(change.UID)
	}
	return nil
}

// after returns the item after a change, if the client watches it.
func (r *run) after(ctx context.Context, change *search.Change) (search.Item, bool, error) {
	if change.After == nil {
		return search.Item{}, false, nil
	}
	matches, err := r.matches(ctx, change.Cluster, change.After)
	if err != nil || !matches || !allows(r.scope, change.Cluster, change.Hub, change.After) {
		return search.Item{}, false, err
	}
	item := search.Item{
		UID: change.UID, Cluster: change.Cluster, Hub: change.Hub, Version: change.Version,
		Object: change.After,
	}
	return item, r.Filter == nil || r.Filter(&item), nil
}

// put returns the event for an item that exists after a change.
func (r *run) put(change *search.Change, item search.Item, was bool) Event {
	event := Event{Type: Added, Item: item, Version: change.Version}
	if was {
		event.Type = Modified
		if change.Before != nil && allows(r.scope, change.Cluster, change.Hub, change.Before) {
			event.Before = change.Before
		}
	}
	return event
}

// gone returns the event for an item that the client knows, and that does not match or is not in
// the scope after a change.
func (r *run) gone(change *search.Change, item search.Item) Event {
	event := Event{Type: Deleted, Item: item, Version: change.Version}
	if change.Before != nil && allows(r.scope, change.Cluster, change.Hub, change.Before) {
		event.Before = change.Before
		event.Item.Object = change.Before
	}
	return event
}

func (r *run) bookmark(ctx context.Context, initialDone bool) error {
	for {
		err := r.emit(ctx, Event{Type: Bookmark, Version: r.position, InitialDone: initialDone})
		if !errors.Is(err, errRescoped) {
			r.bookmarked = r.position
			return err
		}
		if err := r.uninterrupted(ctx, r.resync); err != nil {
			return err
		}
	}
}

func allows(scope visibility.Scope, cluster string, hub bool, properties query.Properties) bool {
	return scope.Allows(visibility.Object{
		Class: search.ClassOf(cluster, hub, properties),
		Name:  search.Text(properties, query.Name),
	})
}
