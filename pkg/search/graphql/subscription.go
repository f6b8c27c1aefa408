package graphql

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	graphqlgo "github.com/graph-gophers/graphql-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
	"open-cluster-management.io/hub-apiserver/pkg/search/watch"
)

// ending is the error with which a subscription ended. The executor cannot return it.
type ending = atomic.Pointer[error]

type endingKey struct{}

func withEnding(ctx context.Context) (context.Context, *ending) {
	e := &ending{}
	return context.WithValue(ctx, endingKey{}, e), e
}

// Watch resolves watch. The channel is closed when ctx or the watch ends.
func (r *root) Watch(ctx context.Context, args struct{ Input *searchInput }) (<-chan *event, error) {
	end, ok := ctx.Value(endingKey{}).(*ending)
	if !ok {
		return nil, badRequest("subscriptions require a WebSocket")
	}
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, failure{apierrors.NewUnauthorized("the request has no user")}
	}
	q, err := args.Input.query()
	if err != nil {
		return nil, err
	}
	released, err := r.Watches.Take(caller)
	if err != nil {
		return nil, failed(err)
	}
	free, err := r.subscriptions.take(caller)
	if err != nil {
		released()
		return nil, err
	}
	release := func() { free(); released() }
	watcher := watch.Watch(ctx, watch.Config{Engine: r.Engine, Scopes: r.Scopes, User: caller, Query: q, Now: r.Now, Memory: r.WatchMemory})
	events := make(chan *event)
	go func() {
		// The order matters: a client that receives the end may subscribe again.
		defer close(events)
		defer release()
		for e := range watcher.Events() {
			if e.Type != watch.Bookmark {
				select {
				case events <- &event{event: e, time: r.Now()}:
				case <-watcher.Ended():
				}
			}
			e.Done()
		}
		if err := watchError(ctx, watcher.Err()); err != nil {
			end.Store(&err)
		}
	}()
	return events, nil
}

// watchError returns the error that the caller of an ended watch receives.
func watchError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, watch.ErrTooSlow), errors.Is(err, search.ErrExpired):
		return failure{apierrors.NewResourceExpired("the client did not receive events in time; search again and start a new subscription")}
	}
	return failed(serving.Error(ctx, fmt.Errorf("watch: %w", err)))
}

// event resolves Event.
type event struct {
	event watch.Event
	time  time.Time
}

// UID resolves uid.
func (e *event) UID() graphqlgo.ID { return graphqlgo.ID(e.event.Item.UID) }

// Operation resolves operation.
func (e *event) Operation() string {
	switch e.event.Type {
	case watch.Added:
		return "INSERT"
	case watch.Deleted:
		return "DELETE"
	}
	return "UPDATE"
}

// NewData resolves newData.
func (e *event) NewData() *object {
	if e.event.Type == watch.Deleted {
		return nil
	}
	return &object{json: appendTyped(nil, &e.event.Item)}
}

// OldData resolves oldData.
func (e *event) OldData() *object {
	item := e.event.Item
	switch {
	case e.event.Type == watch.Deleted:
	case e.event.Before != nil:
		item.Object = e.event.Before
	default:
		return nil
	}
	return &object{json: appendTyped(nil, &item)}
}

// Timestamp resolves timestamp.
func (e *event) Timestamp() date { return date{time: e.time} }
