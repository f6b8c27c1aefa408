package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// watches is what a Reviewer learns while Run runs. The Reviewer's mu guards it
// but for what is set once. A nil one has learned nothing.
type watches struct {
	changed func(types.NamespacedName)
	clock   clock.PassiveClock
	// rechecks are the accounts that are told later.
	rechecks workqueue.TypedDelayingInterface[recheck]

	policy *policy
	kinds  []*kind
	// began is when watching began, synced when everything had been seen for the
	// first time; both are zero before.
	began, synced time.Time
}

// Run watches RBAC of the managed cluster from the time when the first account is
// asked about. Until ctx ends, it calls changed with an account whose answers or
// rules may be others now, from any goroutine; changed must not block. It returns
// when all that it started has ended. It must not run twice at once.
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
	running.Go(func() { w.tellRechecks(ctx) })
	<-ctx.Done()
	w.rechecks.ShutDown()
	running.Wait()
}

// unwatch is the end of Run. What was learned meanwhile is not up to date any more.
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

// announce tells those who wait that the state of the watches has changed. The
// caller holds mu.
func (r *Reviewer) announce() {
	close(r.next)
	r.next = make(chan struct{})
}

// whole reports whether all of RBAC is being watched.
func (w *watches) whole() bool { return w.lacking() == nil }

// lacking says why not all of RBAC is being watched; nil if it is.
func (w *watches) lacking() error {
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
		return fmt.Errorf("the agent may not watch RBAC of the managed cluster; it needs the rule {apiGroups: [rbac.authorization.k8s.io], resources: [%s], verbs: [list, watch]} in a ClusterRole: %w",
			strings.Join(forbidden, ", "), errors.Join(errs...))
	}
	if len(errs) > 0 {
		return fmt.Errorf("RBAC of the managed cluster is not known: %w", errors.Join(errs...))
	}
	return nil
}

// failing reports whether some kind cannot be watched at present.
func (w *watches) failing() bool {
	return slices.ContainsFunc(w.kinds, func(k *kind) bool { return k.err != nil })
}

// recheck tells an account again of an event, at the times for that which are
// after what it did last about it.
func (w *watches) recheck(account types.NamespacedName, event, last time.Time) {
	if w == nil {
		return
	}
	for _, at := range recheckTimes(event) {
		if !at.After(last) {
			continue
		}
		w.rechecks.AddAfter(recheck{account: account, at: at}, at.Sub(w.clock.Now()))
	}
}

// tellRechecks tells accounts when their time has come, until the queue is shut down.
func (w *watches) tellRechecks(ctx context.Context) {
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

// want starts watching if Run runs, or lets it start at once when it will.
func (r *Reviewer) want() { r.wantedOnce.Do(func() { close(r.wanted) }) }

// awaitSettled waits until the API server judges by a policy that is being
// watched: at the first question ever for all of RBAC to be seen and a second
// more, and never if it cannot be seen.
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

// awaitWatching waits until all of RBAC is being watched, or it is known not to be
// possible.
func (r *Reviewer) awaitWatching(ctx context.Context) error {
	deadline := r.clock.Now().Add(rulesTimeout)
	return r.await(ctx, func(now time.Time) (time.Duration, error) {
		err := r.watches.lacking()
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

// await calls left whenever something changes, until it returns nothing left to
// wait for, or an error.
func (r *Reviewer) await(ctx context.Context, left func(now time.Time) (time.Duration, error)) error {
	r.want()
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

// learn lets the policy take note of something that was watched, and tells the
// accounts that it concerns. Those answers are forgotten as well that are suspect,
// if suspect is not nil.
func (r *Reviewer) learn(w *watches, note func(*policy) event, suspect func(*answer) bool) {
	r.mu.Lock()
	now := r.clock.Now()
	e := note(w.policy)
	var concerned []types.NamespacedName
	// Before everything has been seen, what comes is not what has changed.
	if !w.synced.IsZero() && !e.empty() {
		effect := newEffect(e)
		concerned = r.cache.apply(effect, now)
		r.unsettled.add(effect, now)
	}
	if w.synced.IsZero() && w.whole() {
		w.synced = now
		suspect = func(a *answer) bool { return !a.watched }
	}
	if suspect != nil {
		concerned = append(concerned, r.cache.forgetAll(suspect, now)...)
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
