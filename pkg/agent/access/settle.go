package access

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// settling is how long after an event of ours an API server may still judge by
	// the policy before it: its authorizer has watches of its own.
	settling = time.Second
	// lastRecheck is when accounts are told again after an event, at the latest: when
	// all API servers know of it.
	lastRecheck = settling + 100*time.Millisecond
	// recheckStep is how exactly that is kept, so that many events at once are told
	// once.
	recheckStep = 50 * time.Millisecond
	// maxUnsettled bounds how many changes are looked at one by one. If there are
	// more, every answer is taken for one that they concern.
	maxUnsettled = 256
)

// rechecks are when accounts are told again after an event. Most API servers know of
// it by the first; the others are for those that are slow, so that nobody waits long.
var rechecks = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, 800 * time.Millisecond, lastRecheck}

// recheck is an account that is told at a time.
type recheck struct {
	account types.NamespacedName
	at      time.Time
}

// unsettled is an event by which an API server may not judge yet.
type unsettled struct {
	at     time.Time
	effect *effect
}

// unsettledEvents are those of the last second, in order.
type unsettledEvents struct {
	events []unsettled
	// changes is how many changes all events have.
	changes int
	// everything is when the last event came that is not among the events for lack
	// of room.
	everything time.Time
}

func (u *unsettledEvents) add(e *effect, at time.Time) {
	u.prune(at)
	if len(e.changes) == 0 {
		// Rules of a role that nobody has.
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

// last returns when the last event came that an API server may disregard when it
// judges a request at a time.
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

// recheckTimes are when an account is told again after an event.
func recheckTimes(event time.Time) []time.Time {
	var times []time.Time
	for _, after := range rechecks {
		// Rounded up: earlier would be too early.
		times = append(times, event.Add(after+recheckStep-1).Truncate(recheckStep))
	}
	return times
}
