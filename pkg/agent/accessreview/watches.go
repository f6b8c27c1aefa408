package accessreview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// watches is the state of a running Run. The Reviewer's mu guards the fields that change. It is nil
// if Run is not running.
type watches struct {
	changed func(types.NamespacedName)
	clock   clock.PassiveClock
	// rechecks are the accounts to notify later.
	rechecks workqueue.TypedDelayingInterface[recheck]

	policy *policy
	kinds  []*kind
	// began is the time when the watches started. synced is the time when all objects had been
	// listed. Both are zero before.
	began, synced time.Time
}

// Run watches RBAC of the managed cluster from the first question until ctx ends. It calls changed
// with each account whose answers or rules may have changed. It calls changed from any goroutine,
// so changed must not block. Run returns when all its goroutines have ended. It must not be called
// twice concurrently.
func (r *Reviewer) Run(ctx context.Context, changed func(types.NamespacedName)) {
	w := &watches{
		changed: changed, clock: r.clock, policy: newPolicy(),
		rechecks: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[recheck]{Clock: r.clock}),
	}
	w.kinds = r.kindsOf(w)
	r.mu.Lock()
	r.watches = w
	r.announce()
	r.mu.Unlock()
	defer r.unwatch(w)

	select {
	case <-r.wanted:
	case <-ctx.Done():
		return
	}
	r.mu.Lock()
	w.began = r.clock.Now()
	r.announce()
	r.mu.Unlock()

	var running sync.WaitGroup
	for _, k := range w.kinds {
		running.Go(func() { k.run(ctx) })
	}
	running.Go(func() { w.notifyRechecks(ctx) })
	<-ctx.Done()
	w.rechecks.ShutDown()
	running.Wait()
}

// unwatch ends Run. Cached answers become unwatched.
func (r *Reviewer) unwatch(w *watches) {
	w.rechecks.ShutDown()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches = nil
	for _, m := range r.cache.accounts {
		for _, answers := range m.answers {
			for _, a := range answers {
				a.watched = false
			}
		}
	}
	r.announce()
}

// announce wakes the callers of await after the state of the watches has changed. The caller must
// hold mu.
func (r *Reviewer) announce() {
	close(r.next)
	r.next = make(chan struct{})
}

// complete reports whether all kinds of RBAC objects are watched.
func (w *watches) complete() bool { return w.incomplete() == nil }

// incomplete returns nil if all kinds of RBAC objects are watched, or an error with the reason.
func (w *watches) incomplete() error {
	if w == nil {
		return errors.New("the agent does not watch RBAC of the managed cluster")
	}
	var forbidden []string
	var errs []error
	for _, k := range w.kinds {
		switch {
		case apierrors.IsForbidden(k.err):
			forbidden = append(forbidden, k.resource)
			errs = append(errs, k.err)
		case k.err != nil:
			errs = append(errs, k.err)
		case !k.seen:
			errs = append(errs, fmt.Errorf("%s have not been listed yet", k.resource))
		}
	}
	if len(forbidden) > 0 {
		rule := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: forbidden, Verbs: []string{"list", "watch"}}
		return fmt.Errorf("the agent cannot watch RBAC of the managed cluster; grant it with %s: %w", rbac.RoleText("", rule), errors.Join(errs...))
	}
	if len(errs) > 0 {
		return fmt.Errorf("RBAC of the managed cluster is not known yet: %w", errors.Join(errs...))
	}
	return nil
}

// failing reports whether the watch of a kind currently fails.
func (w *watches) failing() bool {
	return slices.ContainsFunc(w.kinds, func(k *kind) bool { return k.err != nil })
}

// recheck schedules the rechecks of an event for an account after a given time.
func (w *watches) recheck(account types.NamespacedName, event, after time.Time) {
	if w == nil {
		return
	}
	for _, at := range recheckTimes(event, after) {
		w.rechecks.AddAfter(recheck{account: account, at: at}, at.Sub(w.clock.Now()))
	}
}

// notifyRechecks notifies accounts when their recheck is due, until the queue is shut down.
func (w *watches) notifyRechecks(ctx context.Context) {
	for {
		due, shutdown := w.rechecks.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			w.changed(due.account)
		}
		w.rechecks.Done(due)
	}
}

// requestWatches makes Run start its watches.
func (r *Reviewer) requestWatches() { r.wantedOnce.Do(func() { close(r.wanted) }) }

// awaitSettled waits until all of RBAC is listed, and then for the settling time, so that the API
// server decides by a policy that is watched. It does not wait if a watch fails.
func (r *Reviewer) awaitSettled(ctx context.Context) error {
	return r.await(ctx, func(now time.Time) (time.Duration, error) {
		w := r.watches
		switch {
		case w == nil || w.failing():
			return 0, nil
		case !w.synced.IsZero():
			return w.synced.Add(settling).Sub(now), nil
		case w.began.IsZero():
			return syncTimeout, nil
		default:
			return w.began.Add(syncTimeout).Sub(now), nil
		}
	})
}

// awaitWatching waits until all of RBAC is watched. It returns an error if a watch is forbidden or
// takes too long.
func (r *Reviewer) awaitWatching(ctx context.Context) error {
	deadline := r.clock.Now().Add(rulesTimeout)
	return r.await(ctx, func(now time.Time) (time.Duration, error) {
		err := r.watches.incomplete()
		switch {
		case err == nil:
			return 0, nil
		case apierrors.IsForbidden(err) || !now.Before(deadline):
			return 0, err
		default:
			return deadline.Sub(now), nil
		}
	})
}

// await calls left whenever the watches change, until left returns an error or no remaining wait
// time.
func (r *Reviewer) await(ctx context.Context, left func(now time.Time) (time.Duration, error)) error {
	r.requestWatches()
	for {
		r.mu.Lock()
		wait, err := left(r.clock.Now())
		next := r.next
		r.mu.Unlock()
		if err != nil || wait <= 0 {
			return err
		}
		timer := r.clock.NewTimer(wait)
		select {
		case <-next:
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// update applies a watched change to the policy and notifies the accounts that the change affects.
// If suspect is not nil, it also invalidates the suspect answers.
func (r *Reviewer) update(w *watches, apply func(*policy) event, suspect func(*answer) bool) {
	r.mu.Lock()
	now := r.clock.Now()
	e := apply(w.policy)
	var concerned []types.NamespacedName
	// Until all objects are listed, a new object is not a change.
	if !w.synced.IsZero() && !e.empty() {
		effect := newEffect(e)
		concerned = r.cache.apply(effect, now)
		r.unsettled.add(effect, now)
	}
	if w.synced.IsZero() && w.complete() {
		w.synced = now
		suspect = func(a *answer) bool { return !a.watched }
	}
	if suspect != nil {
		concerned = append(concerned, r.cache.invalidateAll(suspect, now)...)
	}
	slices.SortFunc(concerned, compareAccounts)
	concerned = slices.Compact(concerned)
	for _, account := range concerned {
		w.recheck(account, now, now)
	}
	r.mu.Unlock()
	for _, account := range concerned {
		w.changed(account)
	}
}
