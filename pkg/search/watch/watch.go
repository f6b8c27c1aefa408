// Package watch watches a search. It sends resources that start to match, change, or no longer
// match, always within the current scope of the caller.
package watch

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// ErrTooSlow is the error of a watch whose events are not received in time.
var ErrTooSlow = errors.New("the watch is too slow: the client does not receive its events in time")

// Config configures a watch.
type Config struct {
	Engine search.Engine
	Scopes search.Scopes
	User   user.Info
	// Query selects the resources. The reference time of ages is the time of each event.
	Query query.Query
	// Filter restricts the matches further. Nil means no restriction.
	Filter func(*search.Item) bool
	// Now is the clock. It defaults to time.Now.
	Now func() time.Time

	// Initial starts the watch with all matches as Added events, and a Bookmark with InitialDone.
	// From is then ignored.
	Initial bool
	// From is the version after which changes are sent. 0 means the current version. If the caller
	// lost permission for an item after that version but before the start of the watch, no event is
	// sent for the item.
	From uint64

	// Patience is the time that an event waits for the receiver before the watch ends with ErrTooSlow.
	// It defaults to ten seconds. Later events stay in the log of the engine until then.
	Patience time.Duration
	// Memory bounds the memory of the watch. Nil means no bound. A watch that exceeds the bound
	// ends with an API error with status 429.
	Memory *Memory
	// BookmarkEvery is the interval of bookmarks while no events are sent. It defaults to one
	// minute.
	BookmarkEvery time.Duration
}

// EventType is the type of an event.
type EventType string

// The types of events.
const (
	// Added is for an item that starts to match or becomes visible.
	Added EventType = "Added"
	// Modified is for an item that was sent before and has changed.
	Modified EventType = "Modified"
	// Deleted is for an item that was sent before and is deleted, no longer matches, or is no
	// longer in the scope. It contains the last properties that were sent. If the scope does not
	// allow them, it contains only kind, namespace and name.
	Deleted EventType = "Deleted"
	// Bookmark contains only the version.
	Bookmark EventType = "Bookmark"
)

// Event is an event of a watch.
type Event struct {
	Type EventType
	// Item is zero in a Bookmark.
	Item search.Item
	// Before contains the properties before a change. It is nil if they are unknown or not in the
	// scope.
	Before query.Properties
	// Version is the version from which another watch may continue.
	Version uint64
	// InitialDone is true in the Bookmark after the initial events.
	InitialDone bool

	held *share
}

// Done stops counting the memory of the event. The receiver calls it when it no longer holds the event. Done may be
// called more than once.
func (e *Event) Done() {
	if e.held != nil {
		e.held.release()
	}
}

// Watcher is a running watch.
type Watcher struct {
	events chan Event
	ended  chan struct{}
	err    error
}

// Events returns the events in order. The channel is closed when the watch ends. Err then returns
// the reason.
func (w *Watcher) Events() <-chan Event { return w.events }

// Ended is closed when the watch ends, so that a receiver that does not receive can stop as well.
func (w *Watcher) Ended() <-chan struct{} { return w.ended }

// Err returns the error with which the watch ended: search.ErrExpired for a version that is too
// old, ErrTooSlow, the error of the context, or another error. It is valid after Events is closed.
func (w *Watcher) Err() error { return w.err }

// Watch starts a watch. The watch ends with ctx or with an error. It never drops events: if the
// receiver is too slow, the watch ends.
func Watch(ctx context.Context, config Config) *Watcher {
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Patience = cmp.Or(config.Patience, 10*time.Second)
	config.BookmarkEvery = cmp.Or(config.BookmarkEvery, time.Minute)
	w := &Watcher{events: make(chan Event), ended: make(chan struct{})}
	r := &run{Config: config, events: w.events, terms: termsOf(&config.Query), sent: newSentItems(share{memory: config.Memory, user: config.User})}
	r.batch = r.sent.share.empty()
	go func() {
		w.err = r.run(ctx)
		close(w.ended)
		close(w.events)
	}()
	return w
}
