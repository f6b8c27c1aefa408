package fleetresource

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
	searchwatch "open-cluster-management.io/hub-apiserver/pkg/search/watch"
)

// waitingEvents is the number of events that may wait for the response. The API server flushes a watch whenever no event
// waits, so a few save most flushes. More would only take memory, because the log of the engine contains the changes.
const waitingEvents = 8

// endTimeout is the time in which a client must receive the end of a watch.
const endTimeout = time.Second

// Watch implements rest.Watcher. Without a resource version, or with 0, it starts with the current state. With
// another resource version, it starts with the changes since then. If the caller loses permission for an object,
// it receives a DELETED event.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	selected, err := newSelection(request.NamespaceValue(ctx), options)
	if err != nil {
		return nil, err
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	scope, err := serving.Scope(ctx, r.Scopes)
	if err != nil {
		return nil, err
	}
	config := searchwatch.Config{Engine: r.Engine, Scopes: r.Scopes, User: caller, Query: selected.query, Memory: r.WatchMemory}
	if selected.name != "" {
		config.Filter = func(item *search.Item) bool { return nameOf(item.UID) == selected.name }
	} else if err := r.checkMemory(ctx, scope, caller, &selected.query); err != nil {
		return nil, err
	}
	if options.ResourceVersion != "" && options.ResourceVersion != "0" {
		from, err := strconv.ParseUint(options.ResourceVersion, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", options.ResourceVersion, err))
		}
		config.From = from
	}
	wanted := options.SendInitialEvents != nil && *options.SendInitialEvents
	if wanted && config.From > 0 {
		// The initial objects are not older than the requested version.
		version, err := r.Engine.Version(ctx)
		if err != nil {
			return nil, serving.Error(ctx, err)
		}
		if err := checkVersion(options, version); err != nil {
			return nil, err
		}
	}
	config.Initial = wanted || (options.SendInitialEvents == nil && config.From == 0)

	ctx, cancel := context.WithCancel(ctx)
	w := &eventStream{
		events: make(chan watch.Event, waitingEvents), stop: cancel,
		bookmarks: options.AllowWatchBookmarks, markInitialEnd: wanted,
	}
	w.running.Go(func() { w.run(ctx, config) })
	return w, nil
}

// checkMemory returns an error if the watch would exceed the memory of watches.
func (r *REST) checkMemory(ctx context.Context, scope visibility.Scope, caller user.Info, q *query.Query) error {
	found, err := r.Engine.Search(ctx, scope, &search.Request{Query: *q, Now: time.Now()})
	if err != nil {
		return serving.Error(ctx, err)
	}
	return r.WatchMemory.Fits(caller, found.Count)
}

// eventStream implements watch.Interface.
type eventStream struct {
	events                    chan watch.Event
	stop                      context.CancelFunc
	running                   sync.WaitGroup
	bookmarks, markInitialEnd bool
}

// ResultChan implements watch.Interface.
func (w *eventStream) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface. It returns after all goroutines have ended.
func (w *eventStream) Stop() {
	w.stop()
	w.running.Wait()
	w.drain()
}

// drain discards the events that wait for the response. A client that continues from the last received event receives
// them again.
func (w *eventStream) drain() {
	for {
		select {
		case event, open := <-w.events:
			if !open {
				return
			}
			if object, ok := event.Object.(*eventObject); ok {
				object.done()
			}
		default:
			return
		}
	}
}

func (w *eventStream) run(ctx context.Context, config searchwatch.Config) {
	defer close(w.events)
	watcher := searchwatch.Watch(ctx, config)
	// API Priority and Fairness holds a seat for a watch until its initial events are sent. For stored resources,
	// the watch cache reports the end of the initial events.
	if !config.Initial {
		utilflowcontrol.WatchInitialized(ctx)
	}
	for event := range watcher.Events() {
		if event.InitialDone {
			utilflowcontrol.WatchInitialized(ctx)
		}
		out := w.event(&event)
		if out == nil {
			event.Done()
			continue
		}
		select {
		case w.events <- *out:
		case <-watcher.Ended():
			event.Done()
		}
	}
	err := watcher.Err()
	switch {
	case err == nil, ctx.Err() != nil:
		return
	case errors.Is(err, search.ErrExpired), errors.Is(err, searchwatch.ErrTooSlow):
		err = apierrors.NewResourceExpired("too old resource version: " + err.Error())
	default:
		err = serving.Error(ctx, fmt.Errorf("watch of fleetresources: %w", err))
	}
	// The client may not read.
	w.drain()
	known := apierrors.APIStatus(apierrors.NewInternalError(err))
	errors.As(err, &known) // it may be wrapped
	status := known.Status()
	w.events <- watch.Event{Type: watch.Error, Object: &status}
	callers.EndResponse(ctx, time.Now().Add(endTimeout))
}

// event returns the event to send, or nil if there is none.
func (w *eventStream) event(event *searchwatch.Event) *watch.Event {
	if event.Type == searchwatch.Bookmark {
		if !w.bookmarks || (event.InitialDone && !w.markInitialEnd) {
			return nil
		}
		bookmark := &searchv1alpha1.FleetResource{}
		bookmark.ResourceVersion = strconv.FormatUint(event.Version, 10)
		if event.InitialDone {
			bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		event.Done()
		return &watch.Event{Type: watch.Bookmark, Object: bookmark}
	}
	object := newObject(&event.Item)
	kind := watch.Added
	switch event.Type {
	case searchwatch.Modified:
		kind = watch.Modified
	case searchwatch.Deleted:
		kind = watch.Deleted
	}
	// A later watch continues from the version of the event. If the caller lost permission for the object, this
	// version is later than the last change of the object.
	if event.Version > event.Item.Version {
		object.ResourceVersion = strconv.FormatUint(event.Version, 10)
	}
	return &watch.Event{Type: kind, Object: &eventObject{FleetResource: object, done: event.Done}}
}
