package watch

import (
	"context"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// replay is the phase until the changes have reached the version at which the matches were
// recorded. In this phase, the state before a change determines whether the client knew an item.
type replay struct {
	running bool
	until   uint64
	// scope is the scope at the start of the watch.
	scope visibility.Scope
	// rescoped is true if the scope has changed since the start.
	rescoped bool
	// touched contains the items of all changes in this phase. For items that the client knows now,
	// the value is the identity after the last change; for other items, it is nil. Complete changes
	// would take too much memory.
	touched map[string]*search.Change
}

// replayChange handles a change of the replay phase.
func (r *run) replayChange(ctx context.Context, change *search.Change) error {
	last, seen := r.replay.touched[change.UID]
	was := last != nil
	if !seen {
		var err error
		if was, err = r.wasKnown(ctx, change); err != nil {
			return err
		}
	}
	item, is, err := r.after(ctx, change)
	switch {
	case err != nil:
		return err
	case is:
		if err := r.emit(ctx, r.put(change, item, was)); err != nil {
			return err
		}
		return r.touch(change.UID, withoutProperties(change))
	case was:
		identity := change.Before
		if last != nil {
			identity = last.After
		}
		item := identityOf(change.UID, change.Cluster, change.Hub, change.Version, identity)
		if err := r.emit(ctx, r.gone(change, item)); err != nil {
			return err
		}
	}
	return r.touch(change.UID, nil)
}

// touch records the last change of an item.
func (r *run) touch(uid string, last *search.Change) error {
	bytes := bytesOfTouched(uid, last)
	if before, known := r.replay.touched[uid]; known {
		bytes -= bytesOfTouched(uid, before)
	} else {
		uid = strings.Clone(uid)
	}
	if bytes <= 0 {
		r.sent.share.shrink(-bytes)
	} else if err := r.sent.share.grow(bytes); err != nil {
		return err
	}
	r.replay.touched[uid] = last
	return nil
}

// touchedBytes is the approximate memory for a touched item, excluding long texts.
const touchedBytes = 4 * typicalItemBytes

// bytesOfTouched returns the approximate memory for a touched item.
func bytesOfTouched(uid string, last *search.Change) int64 {
	bytes := touchedBytes + len(uid)
	if last != nil {
		bytes += len(last.UID) + len(last.Cluster)
		for i := range last.After {
			bytes += len(last.After[i].Leaves[0].Text)
		}
	}
	return int64(bytes)
}

// withoutProperties returns a change with only the properties that identify the item.
func withoutProperties(change *search.Change) *search.Change {
	identity := identityOf(change.UID, change.Cluster, change.Hub, change.Version, change.After)
	out := &search.Change{UID: strings.Clone(change.UID), Cluster: strings.Clone(change.Cluster), Hub: change.Hub, Version: change.Version}
	if properties, is := identity.Object.(query.Properties); is {
		for i := range properties {
			leaf := &properties[i].Leaves[0]
			leaf.Text = strings.Clone(leaf.Text)
		}
		out.After = properties
	}
	return out
}

// wasKnown reports whether the client knew the state before a change.
func (r *run) wasKnown(ctx context.Context, change *search.Change) (bool, error) {
	if change.Before == nil {
		return false, nil
	}
	matches, err := r.matches(ctx, change.Cluster, change.Before)
	if err != nil || !matches ||
		!allows(r.scope, change.Cluster, change.Hub, change.Before) && !allows(r.replay.scope, change.Cluster, change.Hub, change.Before) {
		return false, err
	}
	item := search.Item{
		UID: change.UID, Cluster: change.Cluster, Hub: change.Hub, Version: change.Version,
		Object: change.Before,
	}
	return r.Filter == nil || r.Filter(&item), nil
}

// settle ends the replay. From now on, sent contains the items that the client knows.
func (r *run) settle(ctx context.Context) error {
	bytes := int64(0)
	for uid, last := range r.replay.touched {
		bytes += bytesOfTouched(uid, last)
		r.sent.remove(uid)
		if last != nil {
			if err := r.sent.add(uid, last.Cluster, last.Hub, last.Version, r.pass, last.After); err != nil {
				return err
			}
		}
	}
	r.sent.share.shrink(bytes)
	r.replay.running, r.replay.touched = false, nil
	r.covered = max(r.covered, r.replay.until)
	r.position = max(r.position, r.covered)
	if r.replay.rescoped {
		return r.uninterrupted(ctx, r.resync)
	}
	return nil
}
