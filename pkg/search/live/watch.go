// Package live watches a search: it tells what begins to match, what changes and
// what is gone, to a caller who sees no more than it may find at that moment.
package live

import (
	"context"
	"errors"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// ErrTooSlow is why a watch ends whose events are not received.
var ErrTooSlow = errors.New("the watch is too slow: its events are not received")

const (
	defaultBuffer        = 1024
	defaultPatience      = 10 * time.Second
	defaultBookmarkEvery = time.Minute
)

// Config is what is watched, and for whom.
type Config struct {
	Engine search.Engine
	Scopes search.Scopes
	User   user.Info
	// Query is what resources must match. Ages in it count from the time of each event.
	Query query.Query
	// Filter restricts what matches further; nil restricts nothing.
	Filter func(*search.Item) bool
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	// Initial begins with all that matches, as Added, and a Bookmark that says InitialDone.
	// From is then ignored.
	Initial bool
	// From is the version after which changes are wanted; 0 means from now on. What the caller
	// could find at that version but was revoked before the watch began is not told.
	From uint64

	// Buffer is how many events may wait for the receiver; 0 means 1024.
	Buffer int
	// Patience is how long a full buffer may stay as it is before the watch ends with
	// ErrTooSlow; 0 means ten seconds.
	Patience time.Duration
	// Memory bounds what the watch may remember of what its client knows; nil for no bound. A watch that needs
	// more ends with an API error with status 429.
	Memory *Memory
	// BookmarkEvery is how often the version is told while nothing that is watched
	// changes; 0 means a minute.
	BookmarkEvery time.Duration
}

// EventType is what has happened to an item.
type EventType string

// The types of events.
const (
	// Added is for an item that begins to match or to be visible.
	Added EventType = "Added"
	// Modified is for an item that was told before and has changed.
	Modified EventType = "Modified"
	// Deleted is for an item that was told before and is deleted, does not match any more, or
	// must not be found any more. Its properties are the last ones that the caller was
	// told; just kind, namespace and name if it must not find these now.
	Deleted EventType = "Deleted"
	// Bookmark tells the version and nothing else.
	Bookmark EventType = "Bookmark"
)

// Event is what a watch tells.
type Event struct {
	Type EventType
	// Item is what the event is about; zero in a Bookmark.
	Item search.Item
	// Before are the properties that a change has replaced; nil where they are not
	// known, or must not be found any more.
	Before query.Properties
	// Version is where another watch may continue.
	Version uint64
	// InitialDone is true in the Bookmark that follows what Initial asks for.
	InitialDone bool
}

// Watcher is a running watch.
type Watcher struct {
	events chan Event
	err    error
}

// Events delivers the events, in order. It is closed when the watch ends; Err then says why.
func (w *Watcher) Events() <-chan Event { return w.events }

// Err is why the watch has ended: search.ErrExpired for a version that is too old,
// ErrTooSlow, the error of the context, or another one. It is valid once Events is closed.
func (w *Watcher) Err() error { return w.err }

// Watch starts a watch. It ends when ctx does, or with an error. Nothing is left out
// of it: a receiver who cannot follow sees it end.
func Watch(ctx context.Context, config Config) *Watcher {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Buffer <= 0 {
		config.Buffer = defaultBuffer
	}
	if config.Patience <= 0 {
		config.Patience = defaultPatience
	}
	if config.BookmarkEvery <= 0 {
		config.BookmarkEvery = defaultBookmarkEvery
	}
	w := &Watcher{events: make(chan Event)}
	r := &run{Config: config, events: w.events, told: newTellings(share{memory: config.Memory, user: config.User})}
	go func() {
		w.err = r.run(ctx)
		close(w.events)
	}()
	return w
}
