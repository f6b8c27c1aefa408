package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"open-cluster-management.io/hub-apiserver/pkg/authz"
)

const (
	// defaultPeriod is the default of Options.Period.
	defaultPeriod = 100 * time.Millisecond
	// maxWatches bounds the watches of a view, and watchRetrySeconds is the time after which a client may retry one.
	maxWatches        = 5000
	watchRetrySeconds = 30
	// bookmarkPeriod is the time between bookmarks.
	bookmarkPeriod = time.Minute
	// eventBuffer is the number of events that wait for a slow client.
	eventBuffer = 10
)

// Watch implements rest.Watcher. Changes that follow each other closely are one event. If the caller loses permission for
// an object, it receives a DELETED event, and an ADDED event if it gains permission. Without a resource version, or with 0,
// the watch begins with the current state. With another one, it continues if nothing that the caller sees has changed
// since then; otherwise the server returns 410, and clients list again.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	identity, err := authz.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if from := options.ResourceVersion; from != "" {
		if _, err := strconv.ParseUint(from, 10, 64); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", from, err))
		}
	}
	if r.watches.Add(1) > maxWatches {
		r.watches.Add(-1)
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("the server has %d watches of this view; try again later", maxWatches), watchRetrySeconds)
	}
	w := &follower{
		rest: r, identity: identity, selected: NewSelection(options), events: make(chan watch.Event, eventBuffer), known: map[string]Object{}, bookmarks: options.AllowWatchBookmarks,
	}
	// Subscriptions begin before the first read, so that no change is missed.
	var unsubscribe func()
	w.permissions, w.objects, unsubscribe = r.options.Lister.Subscribe(identity)
	ctx, cancel := context.WithCancel(ctx)
	w.stop = sync.OnceFunc(func() {
		cancel()
		unsubscribe()
		r.watches.Add(-1)
	})
	objects, err := w.read(ctx, true)
	if err != nil {
		w.stop()
		return nil, err
	}
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	switch from := options.ResourceVersion; {
	case initial, options.SendInitialEvents == nil && (from == "" || from == "0"):
	case from == "", from == "0", from == w.version:
		for _, object := range objects {
			w.known[object.GetName()] = r.options.Lister.Remember(object)
		}
	default:
		w.stop()
		return nil, apierrors.NewResourceExpired("your permissions or the objects have changed since this resource version; list again")
	}
	w.running.Go(func() { w.run(ctx, objects, initial && w.bookmarks) })
	return w, nil
}

// follower implements watch.Interface.
type follower struct {
	rest      *REST
	identity  user.Info
	selected  Selection
	bookmarks bool
	events    chan watch.Event
	stop      func()
	running   sync.WaitGroup
	// permissions and objects receive a value after a change.
	permissions, objects <-chan struct{}
	// known are the objects of the Lister that the client knows, by name. version is the version of the last read.
	known   map[string]Object
	version string
}

// ResultChan implements watch.Interface.
func (w *follower) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface. It returns after all goroutines have ended.
func (w *follower) Stop() {
	w.stop()
	w.running.Wait()
}

// read returns the selected objects that the caller sees. Except for the first time, it waits for its turn.
func (w *follower) read(ctx context.Context, first bool) ([]Object, error) {
	visible, err := w.rest.options.Lister.Permit(ctx, w.identity)
	if err != nil {
		return nil, err
	}
	if !first {
		select {
		case w.rest.turn <- struct{}{}:
			defer func() { <-w.rest.turn }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	objects, err := w.selected.of(visible)
	w.version = versionOf(objects)
	return objects, err
}

// run sends events until ctx ends.
func (w *follower) run(ctx context.Context, objects []Object, markInitialEnd bool) {
	defer close(w.events)
	defer w.stop()
	alive := w.pass(ctx, objects)
	if alive && markInitialEnd {
		alive = w.bookmark(ctx, true)
	}
	// API Priority and Fairness holds a seat for a watch until its initial events are sent.
	utilflowcontrol.WatchInitialized(ctx)
	bookmark := time.NewTicker(bookmarkPeriod)
	defer bookmark.Stop()
	pause := time.NewTimer(w.rest.options.Period)
	defer pause.Stop()
	for alive {
		select {
		case <-ctx.Done():
			return
		case <-bookmark.C:
			alive = !w.bookmarks || w.bookmark(ctx, false)
			continue
		case <-w.permissions:
		case <-w.objects:
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			pause.Reset(w.rest.options.Period)
		}
		objects, err := w.read(ctx, false)
		if err != nil {
			w.send(ctx, watch.Event{Type: watch.Error, Object: responsewriters.ErrorToAPIStatus(err)})
			return
		}
		alive = w.pass(ctx, objects)
	}
}

// pass sends the differences between what the client knows and what it may see. It returns false if ctx has ended.
func (w *follower) pass(ctx context.Context, objects []Object) bool {
	gone := maps.Clone(w.known)
	for _, object := range objects {
		name := object.GetName()
		before := w.known[name]
		delete(gone, name)
		event := watch.Modified
		switch {
		case before == nil:
			event = watch.Added
		case before.GetUID() != object.GetUID():
			if !w.send(ctx, watch.Event{Type: watch.Deleted, Object: w.rest.options.Lister.Show(before)}) {
				return false
			}
			event = watch.Added
		case before.GetResourceVersion() == object.GetResourceVersion():
			continue
		}
		if !w.send(ctx, watch.Event{Type: event, Object: w.rest.options.Lister.Show(object)}) {
			return false
		}
		w.known[name] = w.rest.options.Lister.Remember(object)
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if !w.send(ctx, watch.Event{Type: watch.Deleted, Object: w.rest.options.Lister.Show(gone[name])}) {
			return false
		}
		delete(w.known, name)
	}
	return true
}

// bookmark sends the version of the state that the client knows.
func (w *follower) bookmark(ctx context.Context, initialEnd bool) bool {
	object := w.rest.New().(Object)
	object.SetResourceVersion(w.version)
	if initialEnd {
		object.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: object})
}

func (w *follower) send(ctx context.Context, event watch.Event) bool {
	select {
	case w.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}
