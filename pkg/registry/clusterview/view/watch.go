package view

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

const (
	// passPeriod is the minimum time between two passes of a watch, so that many changes cost little.
	passPeriod = 100 * time.Millisecond
	// bookmarkPeriod is the time between bookmarks.
	bookmarkPeriod = time.Minute
	// eventBuffer is the number of events that wait for a slow client.
	eventBuffer = 100
)

// Watch implements rest.Watcher. Changes that follow each other closely are one event. If the caller loses permission for
// an object, it receives a DELETED event, and an ADDED event if it gains permission. Without a resource version, or with 0,
// the watch begins with the current state. With another one, it continues if nothing that the caller sees has changed
// since then; otherwise the server returns 410, and clients list again.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	identity, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	w := &follower{
		rest: r, selected: newSelection(options), events: make(chan watch.Event, eventBuffer), known: map[string]Object{}, bookmarks: options.AllowWatchBookmarks,
	}
	// Subscriptions begin before the first read, so that no change is missed.
	var stopPermissions, stopObjects func()
	w.permissions, stopPermissions = r.options.Scopes.Subscribe(identity)
	w.objects, stopObjects = r.changes.subscribe()
	ctx, cancel := context.WithCancel(ctx)
	w.stop = sync.OnceFunc(func() {
		cancel()
		stopPermissions()
		stopObjects()
	})
	visible, err := r.visible(ctx, w.selected)
	if err != nil {
		w.stop()
		return nil, err
	}
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	version := r.versions.of(visible)
	switch from := options.ResourceVersion; {
	case initial, options.SendInitialEvents == nil && (from == "" || from == "0"):
	case from == "", from == "0", from == version:
		w.learn(visible)
	default:
		w.stop()
		return nil, apierrors.NewResourceExpired("what you may get has changed since this resource version; list again")
	}
	w.running.Go(func() { w.run(ctx, visible, initial) })
	return w, nil
}

// follower implements watch.Interface.
type follower struct {
	rest      *REST
	selected  selection
	bookmarks bool
	events    chan watch.Event
	stop      func()
	running   sync.WaitGroup
	// permissions and objects receive a value after a change.
	permissions, objects <-chan struct{}
	// known are the objects of the source that the client knows, by name.
	known map[string]Object
}

// ResultChan implements watch.Interface.
func (w *follower) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface. It returns after all goroutines have ended.
func (w *follower) Stop() {
	w.stop()
	w.running.Wait()
}

// learn records objects that the client knows.
func (w *follower) learn(objects []Object) {
	for _, object := range objects {
		w.known[object.GetName()] = object
	}
}

// run sends events until ctx ends.
func (w *follower) run(ctx context.Context, visible []Object, markInitialEnd bool) {
	defer close(w.events)
	defer w.stop()
	alive := w.pass(ctx, visible)
	if alive && markInitialEnd {
		alive = w.bookmark(ctx, visible, true)
	}
	// API Priority and Fairness holds a seat for a watch until its initial events are sent.
	utilflowcontrol.WatchInitialized(ctx)
	bookmark := time.NewTicker(bookmarkPeriod)
	defer bookmark.Stop()
	pause := time.NewTimer(passPeriod)
	defer pause.Stop()
	for alive {
		select {
		case <-ctx.Done():
			return
		case <-bookmark.C:
			alive = !w.bookmarks || w.bookmark(ctx, visible, false)
			continue
		case <-w.permissions:
		case <-w.objects:
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
			pause.Reset(passPeriod)
		}
		var err error
		if visible, err = w.rest.visible(ctx, w.selected); err != nil {
			w.fail(ctx, err)
			return
		}
		alive = w.pass(ctx, visible)
	}
}

// pass sends the differences between what the client knows and what it may see. It returns false if ctx has ended.
func (w *follower) pass(ctx context.Context, visible []Object) bool {
	gone := maps.Clone(w.known)
	for _, object := range visible {
		name := object.GetName()
		before := w.known[name]
		delete(gone, name)
		event := watch.Modified
		switch {
		case before == nil:
			event = watch.Added
		case before.GetUID() != object.GetUID():
			if !w.send(ctx, watch.Event{Type: watch.Deleted, Object: w.rest.options.Show(before)}) {
				return false
			}
			event = watch.Added
		case before.GetResourceVersion() == object.GetResourceVersion():
			continue
		}
		if !w.send(ctx, watch.Event{Type: event, Object: w.rest.options.Show(object)}) {
			return false
		}
		w.known[name] = object
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		if !w.send(ctx, watch.Event{Type: watch.Deleted, Object: w.rest.options.Show(gone[name])}) {
			return false
		}
		delete(w.known, name)
	}
	return true
}

// bookmark sends the version of the state that the client knows.
func (w *follower) bookmark(ctx context.Context, visible []Object, initialEnd bool) bool {
	object := w.rest.options.New()
	object.SetResourceVersion(w.rest.versions.of(visible))
	if initialEnd {
		object.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: object})
}

// fail sends the reason why the watch ends.
func (w *follower) fail(ctx context.Context, err error) {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		status = apierrors.NewInternalError(err)
	}
	failure := status.Status()
	if failure.Code == 0 {
		failure.Code = http.StatusInternalServerError
	}
	w.send(ctx, watch.Event{Type: watch.Error, Object: &failure})
}

func (w *follower) send(ctx context.Context, event watch.Event) bool {
	select {
	case w.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}
