package watch

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// scopeBackoff bounds the time that a watch waits for a scope. It sends no events in that time.
var scopeBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6}

// emit sends an event that was decided with the current scope, and waits until the receiver takes it. If the scope
// changes before that, it sends nothing and returns errRescoped.
func (r *run) emit(ctx context.Context, event Event) error {
	stale := time.Since(r.scoped) > scopeAge
	select {
	case <-r.changed:
		stale = true
	default:
	}
	if stale {
		if err := r.rescope(ctx); err != nil {
			return err
		}
	}
	bytes := int64(eventBytes)
	if event.Type != Bookmark {
		encoded := search.JSON(event.Item.JSON())
		event.Item.Object = encoded
		bytes += int64(cap(encoded))
	}
	event.held = r.sent.share.empty()
	if err := event.held.grow(bytes); err != nil {
		return err
	}
	if err := r.send(ctx, event); err != nil {
		event.Done()
		return err
	}
	return nil
}

func (r *run) send(ctx context.Context, event Event) error {
	impatient := time.NewTimer(r.Patience)
	defer impatient.Stop()
	for {
		select {
		case r.events <- event:
			return nil
		case <-r.changed:
		case <-r.poll.C:
		case <-impatient.C:
			return ErrTooSlow
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := r.rescope(ctx); err != nil {
			return err
		}
	}
}

// refresh handles a possible change of the scope.
func (r *run) refresh(ctx context.Context) error { return r.uninterrupted(ctx, r.rescope) }

// rescope updates the scope, and returns errRescoped if it has changed. While the scope is unknown, no events are sent.
func (r *run) rescope(ctx context.Context) error {
	var scope visibility.Scope
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, scopeBackoff, func(ctx context.Context) (bool, error) {
		scope, last = r.Scopes.Scope(ctx, r.User)
		if last != nil {
			klog.FromContext(ctx).V(2).Info("Cannot determine the scope of a watch", "user", r.User.GetName(), "err", last)
		}
		return last == nil, nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("the permissions of the caller are unknown: %w", last)
	}
	r.scoped = time.Now()
	if scope == r.scope {
		return nil
	}
	r.scope = scope
	return errRescoped
}
