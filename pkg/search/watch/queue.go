package watch

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// scopeBackoff bounds the time that a watch waits for a scope. It sends no events in that time.
var scopeBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6}

// emit queues an event that was decided with the current scope. If the scope has changed since
// then, it queues nothing and returns errRescoped.
func (r *run) emit(ctx context.Context, event Event) error {
	stale := time.Since(r.scoped) > scopeAge
	select {
	case <-r.changed:
		stale = true
	default:
	}
	if stale {
		if changed, err := r.rescope(ctx); err != nil || changed {
			return rescoped(changed, err)
		}
	}
	for len(r.queue) >= r.Buffer {
		timer := time.NewTimer(r.Patience)
		err := r.offer(ctx, timer.C)
		timer.Stop()
		if err != nil {
			return err
		}
	}
	r.queue = append(r.queue, event)
	return nil
}

// offer waits until the receiver takes an event.
func (r *run) offer(ctx context.Context, impatient <-chan time.Time) error {
	for {
		select {
		case r.events <- r.queue[0]:
			r.pop()
			return nil
		case <-r.changed:
		case <-r.poll.C:
		case <-impatient:
			return ErrTooSlow
		case <-ctx.Done():
			return ctx.Err()
		}
		if changed, err := r.rescope(ctx); err != nil || changed {
			return rescoped(changed, err)
		}
	}
}

func (r *run) pop() {
	// The remaining queue must not keep received events in memory.
	r.queue[0] = Event{}
	r.queue = r.queue[1:]
}

func rescoped(changed bool, err error) error {
	if err == nil && changed {
		return errRescoped
	}
	return err
}

// refresh handles a possible change of the scope.
func (r *run) refresh(ctx context.Context) error {
	changed, err := r.rescope(ctx)
	switch {
	case err != nil || !changed:
		return err
	case r.replay.running:
		r.replay.rescoped = true
		return nil
	}
	return r.uninterrupted(ctx, r.resync)
}

// rescope updates the scope and reports whether it has changed. While the scope is unknown, no
// events are sent.
func (r *run) rescope(ctx context.Context) (bool, error) {
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
		return false, ctx.Err()
	case err != nil:
		return false, fmt.Errorf("the permissions of the caller are unknown: %w", last)
	}
	r.scoped = time.Now()
	if scope == r.scope {
		return false, nil
	}
	r.scope = scope
	r.purge()
	return true, nil
}

// purge removes events from the queue that the new scope does not allow.
func (r *run) purge() {
	if len(r.queue) == 0 {
		return
	}
	// unsent contains items that the client will not receive.
	unsent := map[string]bool{}
	kept := make([]Event, 0, len(r.queue))
	for _, event := range r.queue {
		uid := event.Item.UID
		if event.Type == Bookmark {
			kept = append(kept, event)
			continue
		}
		if unsent[uid] {
			if event.Type == Deleted {
				delete(unsent, uid)
			}
			continue
		}
		if event.Before != nil && !allows(r.scope, event.Item.Cluster, event.Item.Hub, event.Before) {
			event.Before = nil
		}
		// Properties that cannot be decoded are not visible.
		properties, err := query.DecodeProperties(event.Item.JSON())
		visible := err == nil && allows(r.scope, event.Item.Cluster, event.Item.Hub, properties)
		switch {
		case visible:
			kept = append(kept, event)
		case event.Type == Added:
			unsent[uid] = true
		case event.Type == Modified:
			r.forget(uid)
		case event.Type == Deleted:
			event.Item = identityOf(uid, event.Item.Cluster, event.Item.Hub, event.Item.Version, properties)
			kept = append(kept, event)
		}
	}
	r.queue = kept
	for uid := range unsent {
		if last := r.replay.touched[uid]; last != nil {
			r.sent.share.shrink(bytesOfTouched(uid, last) - bytesOfTouched(uid, nil))
			r.replay.touched[uid] = nil
		}
		r.sent.remove(uid)
	}
}

// forget makes the next state of an item new to the client, because the last state was not sent.
// The item may become visible again.
func (r *run) forget(uid string) {
	if known, ok := r.sent.items[uid]; ok {
		known.version = 0
		r.sent.items[uid] = known
	}
	if last := r.replay.touched[uid]; last != nil {
		again := *last
		again.Version = 0
		r.replay.touched[uid] = &again
	}
}
