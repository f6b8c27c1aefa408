package fleetresource

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/live"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
	"open-cluster-management.io/hub-apiserver/pkg/search/terms"
)

// Watch implements rest.Watcher. Without a resource version, or with 0, it begins with what
// there is; with another one, with what has changed since. An object that its caller may not
// find any more is deleted for the watch.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	selected, err := newSelection(request.NamespaceValue(ctx), options)
	if err != nil {
		return nil, err
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("the request has no user")
	}
	scope, err := terms.Scope(ctx, r.scopes)
	if err != nil {
		return nil, err
	}
	config := live.Config{Engine: r.engine, Scopes: r.scopes, User: caller, Query: selected.query, Memory: r.memory}
	if selected.name != "" {
		config.Filter = func(item *search.Item) bool { return nameOf(item.UID) == selected.name }
	} else if err := r.fits(ctx, scope, caller, &selected.query); err != nil {
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
	config.Initial = wanted || (options.SendInitialEvents == nil && config.From == 0)

	ctx, cancel := context.WithCancel(ctx)
	w := &watching{
		events: make(chan watch.Event), stop: cancel,
		bookmarks: options.AllowWatchBookmarks, tellInitialEnd: wanted,
	}
	w.running.Go(func() { w.run(ctx, config) })
	return w, nil
}

// fits refuses a watch of more than there is memory to remember, before it begins.
func (r *REST) fits(ctx context.Context, scope visibility.Scope, caller user.Info, q *query.Query) error {
	found, err := r.engine.Search(ctx, scope, &search.Request{Query: *q, Now: time.Now()})
	if err != nil {
		return terms.Error(ctx, err)
	}
	return r.memory.Fits(caller, found.Count)
}

// watching implements watch.Interface.
type watching struct {
	events                    chan watch.Event
	stop                      context.CancelFunc
	running                   sync.WaitGroup
	bookmarks, tellInitialEnd bool
}

// ResultChan implements watch.Interface.
func (w *watching) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface. It returns once nothing runs any more.
func (w *watching) Stop() {
	w.stop()
	w.running.Wait()
}

func (w *watching) run(ctx context.Context, config live.Config) {
	defer close(w.events)
	source, end := context.WithCancel(ctx)
	defer end()
	watcher := live.Watch(source, config)
	// After its initial events, a watch takes no seat of API Priority and Fairness any more. A cacher says
	// so for stored resources; here nothing else does.
	if !config.Initial {
		utilflowcontrol.WatchInitialized(ctx)
	}
	var failed error
	for event := range watcher.Events() {
		if event.InitialDone {
			utilflowcontrol.WatchInitialized(ctx)
		}
		out, err := w.event(&event)
		if err != nil {
			failed = err
			break
		}
		if out != nil {
			w.send(ctx, *out)
		}
	}
	end()
	for range watcher.Events() {
	}
	err := failed
	if err == nil {
		err = watcher.Err()
	}
	switch {
	case err == nil, ctx.Err() != nil:
		return
	case errors.Is(err, search.ErrExpired), errors.Is(err, live.ErrTooSlow):
		err = apierrors.NewResourceExpired("too old resource version: " + err.Error())
	default:
		err = terms.Error(ctx, fmt.Errorf("watch of fleetresources: %w", err))
	}
	w.send(ctx, watch.Event{Type: watch.Error, Object: status(err)})
}

func (w *watching) send(ctx context.Context, event watch.Event) {
	select {
	case w.events <- event:
	case <-ctx.Done():
	}
}

func (w *watching) event(event *live.Event) (*watch.Event, error) {
	if event.Type == live.Bookmark {
		if !w.bookmarks || (event.InitialDone && !w.tellInitialEnd) {
			return nil, nil
		}
		bookmark := &searchv1alpha1.FleetResource{}
		bookmark.ResourceVersion = strconv.FormatUint(event.Version, 10)
		if event.InitialDone {
			bookmark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		return &watch.Event{Type: watch.Bookmark, Object: bookmark}, nil
	}
	object, err := newObject(&event.Item)
	if err != nil {
		return nil, err
	}
	out := &watch.Event{Type: watch.Added, Object: object}
	switch event.Type {
	case live.Modified:
		out.Type = watch.Modified
	case live.Deleted:
		out.Type = watch.Deleted
	}
	// Where a watch of this object may continue, which for one that was revoked is later
	// than its last change.
	if event.Version > event.Item.Version {
		object.ResourceVersion = strconv.FormatUint(event.Version, 10)
	}
	return out, nil
}

func status(err error) *metav1.Status {
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		out := known.Status()
		return &out
	}
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
}
