package live

import (
	"context"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// replay is the time until changes have reached the version that what matches was noted at.
// Until then the state before a change says whether the caller knew an item.
type replay struct {
	running bool
	until   uint64
	// scope is what the caller could find when the watch began.
	scope visibility.Scope
	// rescoped is true if the scope has changed since.
	rescoped bool
	// touched are the items that changes were about, with who the item is after the last change for those
	// that the caller knows now, and nil for others. The changes themselves are far too large to keep.
	touched map[string]*search.Change
}

// again tells what a change means that came before what matches was noted.
func (r *run) again(ctx context.Context, change *search.Change) error {
	last, seen := r.replay.touched[change.UID]
	was := last != nil
	if !seen {
		was = change.Before != nil && r.knew(change)
	}
	item, is := r.after(change)
	switch {
	case is:
		if err := r.emit(ctx, r.put(change, item, was)); err != nil {
			return err
		}
		return r.touch(change.UID, withoutProperties(change))
	case was:
		who := change.Before
		if last != nil {
			who = last.After
		}
		item := anonymous(change.UID, change.Cluster, change.Hub, change.Version, who)
		if err := r.emit(ctx, r.gone(change, item)); err != nil {
			return err
		}
	}
	return r.touch(change.UID, nil)
}

// touch notes the last change of an item.
func (r *run) touch(uid string, last *search.Change) error {
	if _, known := r.replay.touched[uid]; !known {
		if err := r.told.share.grow(touchedBytes); err != nil {
			return err
		}
		uid = strings.Clone(uid)
	}
	r.replay.touched[uid] = last
	return nil
}

// touchedBytes is about what a touched item takes.
const touchedBytes = 4 * usualBytes

// withoutProperties is a change with only those properties that say who the item is.
func withoutProperties(change *search.Change) *search.Change {
	who := anonymous(change.UID, change.Cluster, change.Hub, change.Version, change.After)
	out := &search.Change{UID: strings.Clone(change.UID), Cluster: strings.Clone(change.Cluster), Hub: change.Hub, Version: change.Version}
	if properties, is := who.Object.(query.Properties); is {
		for i := range properties {
			leaf := &properties[i].Leaves[0]
			leaf.Text = strings.Clone(leaf.Text)
		}
		out.After = properties
	}
	return out
}

// knew tells whether the caller knew the state before a change.
func (r *run) knew(change *search.Change) bool {
	if !r.matches(change.Cluster, change.Before) ||
		!allows(r.scope, change.Cluster, change.Hub, change.Before) && !allows(r.replay.scope, change.Cluster, change.Hub, change.Before) {
		return false
	}
	item := search.Item{
		UID: change.UID, Cluster: change.Cluster, Hub: change.Hub, Version: change.Version,
		Object: change.Before,
	}
	return r.Filter == nil || r.Filter(&item)
}

// settle ends the replay: from now on what was told says what the caller knows.
func (r *run) settle(ctx context.Context) error {
	for uid, last := range r.replay.touched {
		r.told.remove(uid)
		if last != nil {
			if err := r.told.add(uid, last.Cluster, last.Hub, last.Version, r.pass, last.After); err != nil {
				return err
			}
		}
	}
	r.told.share.shrink(int64(len(r.replay.touched)) * touchedBytes)
	r.replay.running, r.replay.touched = false, nil
	r.covered = max(r.covered, r.replay.until)
	r.position = max(r.position, r.covered)
	if r.replay.rescoped {
		return r.uninterrupted(ctx, r.resync)
	}
	return nil
}
