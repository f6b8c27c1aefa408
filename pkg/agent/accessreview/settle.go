package accessreview

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// settling is the time after an event during which an API server may still decide by the
	// previous policy, because its authorizer has its own watches.
	settling = time.Second
	// lastRecheck is the delay of the last recheck after an event. By then, all API servers have
	// received the event.
	lastRecheck = settling + 100*time.Millisecond
	// lagging is the time after an event during which an API server is assumed to decide by the
	// previous policy if it allows a request that RBAC no longer grants. Busy API servers need more
	// than the settling time. Later, another authorizer is assumed to allow the request.
	lagging = 30 * time.Second
	// recheckStep is the granularity of rechecks, so that simultaneous events share one.
	recheckStep = 50 * time.Millisecond
	// maxUnsettled bounds the number of changes that are examined one by one. If there are more,
	// they are assumed to affect every answer.
	maxUnsettled = 256
)

// rechecks are the delays after an event at which accounts are notified again. Most API servers
// have received the event at the first recheck. The others are for slow API servers.
var rechecks = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, 800 * time.Millisecond, lastRecheck}

// lateRechecks are the delays for API servers that are still behind after the last recheck.
var lateRechecks = []time.Duration{2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 20 * time.Second, lagging + 100*time.Millisecond}

// recheck is an account and the time to notify it.
type recheck struct {
	account types.NamespacedName
	at      time.Time
}

// unsettled is an event that an API server may not have received yet.
type unsettled struct {
	at     time.Time
	effect *effect
}

// unsettledEvents are recent events, in order.
type unsettledEvents struct {
	// events are the events of the settling time and, as far as maxUnsettled permits, of the
	// lagging time.
	events []unsettled
	// changes is the number of changes in all events.
	changes int
	// everything is the time of the last event that exceeded maxUnsettled.
	everything time.Time
}

func (u *unsettledEvents) add(e *effect, at time.Time) {
	u.prune(at)
	if len(e.changes) == 0 {
		// No binding has changed: the event only changed rules of an unbound role.
		return
	}
	for len(u.events) > 0 && u.changes+len(e.changes) > maxUnsettled && at.Sub(u.events[0].at) >= settling {
		u.dropFirst()
	}
	if u.changes+len(e.changes) > maxUnsettled {
		u.everything = at
		return
	}
	u.events = append(u.events, unsettled{at: at, effect: e})
	u.changes += len(e.changes)
}

func (u *unsettledEvents) prune(now time.Time) {
	for len(u.events) > 0 && now.Sub(u.events[0].at) >= lagging {
		u.dropFirst()
	}
}

func (u *unsettledEvents) dropFirst() {
	u.changes -= len(u.events[0].effect.changes)
	u.events = slices.Delete(u.events, 0, 1)
}

// last returns the time of the last event that concerns a request. It reports whether an API server
// may have decided the request at the given time without that event. contradicts is true if the API
// server has allowed a request that RBAC does not grant.
func (u *unsettledEvents) last(account types.NamespacedName, request Request, at time.Time, contradicts bool) (time.Time, bool) {
	u.prune(at)
	var last time.Time
	if at.Sub(u.everything) < settling {
		last = u.everything
	}
	for _, e := range slices.Backward(u.events) {
		if !e.at.After(last) || !contradicts && at.Sub(e.at) >= settling {
			break
		}
		if e.effect.concerns(account, request) {
			return e.at, true
		}
	}
	return last, !last.IsZero()
}

// recheckTimes returns the times of the rechecks of an event after a given time. If that time is
// after the last recheck, it returns the next late recheck.
func recheckTimes(event, after time.Time) []time.Time {
	var times []time.Time
	for _, delay := range rechecks {
		if at := recheckTime(event, delay); at.After(after) {
			times = append(times, at)
		}
	}
	if len(times) > 0 {
		return times
	}
	for _, delay := range lateRechecks {
		if at := recheckTime(event, delay); at.After(after) {
			return []time.Time{at}
		}
	}
	return nil
}

// recheckTime rounds up, because an earlier recheck may find the previous policy.
func recheckTime(event time.Time, delay time.Duration) time.Time {
	return event.Add(delay + recheckStep - 1).Truncate(recheckStep)
}
