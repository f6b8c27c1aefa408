package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// changesAtATime bounds what is read from the engine at a time.
	changesAtATime = 1000
	// scopeAge is how old the scope may be that an event is checked with, where nobody
	// has said that it has changed; scopePoll is how often it is looked at besides.
	scopeAge  = 10 * time.Millisecond
	scopePoll = 500 * time.Millisecond
	// fetchTimeout is how long changes are waited for at a time, replayTimeout while there
	// should be some.
	fetchTimeout  = 10 * time.Second
	replayTimeout = 100 * time.Millisecond
)

// errRescoped interrupts whatever was decided with a former scope.
var errRescoped = errors.New("the scope has changed")

// run is what one goroutine does for a watch.
type run struct {
	Config
	events chan<- Event

	changed <-chan struct{}
	poll    *time.Ticker
	scope   visibility.Scope
	scoped  time.Time

	// queue are the events that wait for the receiver.
	queue []Event
	told  tellings
	pass  uint32
	// covered is the version up to which the last listing tells everything, position that of
	// the last event.
	covered, position uint64
	bookmarked        uint64
	replay            replay
}

// batch is what the engine has changed.
type batch struct {
	changes []search.Change
	version uint64
	err     error
}

func (r *run) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var fetching wait.Group
	defer r.told.share.release()
	defer fetching.Wait()
	defer cancel()

	changed, stop := r.Scopes.Subscribe(r.User)
	defer stop()
	r.changed = changed
	r.poll = time.NewTicker(wait.Jitter(scopePoll, 0.2))
	defer r.poll.Stop()
	bookmarks := time.NewTicker(wait.Jitter(r.BookmarkEvery, 0.1))
	defer bookmarks.Stop()

	if _, err := r.rescope(ctx); err != nil {
		return err
	}
	after, err := r.begin(ctx)
	if err != nil {
		return err
	}
	until, batches := r.replay.until, make(chan batch)
	fetching.StartWithContext(ctx, func(ctx context.Context) { r.fetch(ctx, after, until, batches) })

	for {
		// A scope that has changed comes before an event that waits.
		select {
		case <-r.changed:
			if err := r.refresh(ctx); err != nil {
				return err
			}
		default:
		}
		var out chan<- Event
		var head Event
		if len(r.queue) > 0 {
			out, head = r.events, r.queue[0]
		}
		select {
		case out <- head:
			r.pop()
		case b := <-batches:
			if b.err != nil {
				return fmt.Errorf("reading changes: %w", b.err)
			}
			if err := r.apply(ctx, b); err != nil {
				return err
			}
		case <-r.changed:
			if err := r.refresh(ctx); err != nil {
				return err
			}
		case <-r.poll.C:
			if err := r.refresh(ctx); err != nil {
				return err
			}
		case <-bookmarks.C:
			if len(r.queue) == 0 && r.position > r.bookmarked && !r.replay.running {
				if err := r.bookmark(ctx, false); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin tells or notes what matches now. It returns the version that changes are wanted after.
func (r *run) begin(ctx context.Context) (uint64, error) {
	if r.Initial {
		if err := r.uninterrupted(ctx, r.initial); err != nil {
			return 0, err
		}
		// A new scope while the bookmark waits moves what is covered; changes that are read twice are told once.
		after := r.covered
		return after, r.bookmark(ctx, true)
	}
	first, last, err := r.note(ctx)
	if err != nil {
		return 0, err
	}
	after := r.From
	if after == 0 {
		after = first
	}
	r.position, r.bookmarked = after, after
	r.replay = replay{running: last > after, until: last, scope: r.scope, touched: map[string]*search.Change{}}
	return after, nil
}

// fetch reads changes until ctx ends; those up to the version until are waited for at first.
func (r *run) fetch(ctx context.Context, after, until uint64, out chan<- batch) {
	idle := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Steps: 8, Cap: time.Second}
	backoff := idle
	for {
		// Without changes the version alone is told, so that a replay ends and bookmarks go on.
		timeout := fetchTimeout
		if after < until {
			timeout = replayTimeout
		}
		b := r.read(ctx, after, timeout)
		if ctx.Err() != nil {
			return
		}
		if b.err == nil && b.version <= after {
			// An engine may wait for less than it was asked to.
			select {
			case <-time.After(backoff.Step()):
				continue
			case <-ctx.Done():
				return
			}
		}
		backoff = idle
		select {
		case out <- b:
		case <-ctx.Done():
			return
		}
		if b.err != nil {
			return
		}
		after = b.version
	}
}

func (r *run) read(ctx context.Context, after uint64, timeout time.Duration) batch {
	reading, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	changes, version, err := r.Engine.Changes(reading, after, changesAtATime)
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		return batch{version: after}
	}
	return batch{changes: changes, version: version, err: err}
}

// apply tells what changes mean for the caller.
func (r *run) apply(ctx context.Context, b batch) error {
	for i := range b.changes {
		change := &b.changes[i]
		if r.replay.running && change.Version > r.replay.until {
			if err := r.settle(ctx); err != nil {
				return err
			}
		}
		err := r.change(ctx, change)
		for errors.Is(err, errRescoped) {
			if !r.replay.running {
				if err = r.uninterrupted(ctx, r.resync); err != nil {
					return err
				}
			} else {
				r.replay.rescoped = true
			}
			err = r.change(ctx, change)
		}
		if err != nil {
			return err
		}
	}
	r.position = max(r.position, b.version)
	if r.replay.running && b.version >= r.replay.until {
		return r.settle(ctx)
	}
	return nil
}

// change tells what one change means for the caller, once what is known of all
// that matches is known up to it.
func (r *run) change(ctx context.Context, change *search.Change) error {
	if r.replay.running {
		return r.again(ctx, change)
	}
	known, was := r.told.items[change.UID]
	if change.Version <= r.covered || was && change.Version <= known.version {
		return nil
	}
	item, is := r.after(change)
	switch {
	case is:
		if err := r.emit(ctx, r.put(change, item, was)); err != nil {
			return err
		}
		return r.told.add(change.UID, change.Cluster, change.Hub, change.Version, r.pass, change.After)
	case was:
		if err := r.emit(ctx, r.gone(change, r.told.item(change.UID, change.Version))); err != nil {
			return err
		}
		r.told.remove(change.UID)
	}
	return nil
}

// after is the item after a change, if the caller watches it.
func (r *run) after(change *search.Change) (search.Item, bool) {
	if change.After == nil || !r.matches(change.Cluster, change.After) || !allows(r.scope, change.Cluster, change.Hub, change.After) {
		return search.Item{}, false
	}
	item := search.Item{
		UID: change.UID, Cluster: change.Cluster, Hub: change.Hub, Version: change.Version,
		Object: change.After,
	}
	return item, r.Filter == nil || r.Filter(&item)
}

func (r *run) matches(cluster string, properties query.Properties) bool {
	return r.Query.Matches(cluster, properties, r.Now())
}

// put is the event for an item that is there after a change.
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

// gone is the event for an item that the caller knows in the state before a change, and
// must not know after it.
func (r *run) gone(change *search.Change, who search.Item) Event {
	event := Event{Type: Deleted, Item: who, Version: change.Version}
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
