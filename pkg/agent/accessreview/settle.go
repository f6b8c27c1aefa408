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
	// recheckStep is the granularity of rechecks, so that simultaneous events share one.
	recheckStep = 50 * time.Millisecond
	// maxUnsettled bounds the number of changes that are examined one by one. If there are more,
	// they are assumed to affect every answer.
	maxUnsettled = 256
)

// rechecks are the delays after an event at which accounts are notified again. Most API servers
// have received the event at the first recheck. The others are for slow API servers.
var rechecks = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, 800 * time.Millisecond, lastRecheck}

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

// unsettledEvents are the events of the last second, in order.
type unsettledEvents struct {
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
	if u.changes+len(e.changes) > maxUnsettled {
		u.everything = at
		return
	}
	u.events = append(u.events, unsettled{at: at, effect: e})
	u.changes += len(e.changes)
}

func (u *unsettledEvents) prune(now time.Time) {
	u.events = slices.DeleteFunc(u.events, func(e unsettled) bool {
		if now.Sub(e.at) < settling {
			return false
		}
		u.changes -= len(e.effect.changes)
		return true
	})
}

// last returns the time of the last event that concerns a request. It reports whether an API server
// may have decided the request at the given time without that event.
func (u *unsettledEvents) last(account types.NamespacedName, request Request, at time.Time) (time.Time, bool) {
	u.prune(at)
	last := u.everything
	for _, e := range slices.Backward(u.events) {
		if e.at.After(last) && e.effect.concerns(account, request) {
			last = e.at
			break
		}
	}
	return last, at.Sub(last) < settling
}

// recheckTimes returns the times of the rechecks of an event.
func recheckTimes(event time.Time) []time.Time {
	var times []time.Time
	for _, after := range rechecks {
		// Round up, because an earlier recheck may find the previous policy.
		times = append(times, event.Add(after+recheckStep-1).Truncate(recheckStep))
	}
	return times
}
