package watch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// rewindTimeout bounds the wait for changes that a rewind has not read yet.
const rewindTimeout = 100 * time.Millisecond

// rewind turns the recorded items into those that the client knew at an earlier version. until is the version up to which
// the record may contain changes. The state before the first change of an item after the version decides.
func (r *run) rewind(ctx context.Context, version, until uint64) error {
	seen, held := map[string]struct{}{}, r.sent.share.empty()
	defer held.release()
	for at := (search.Position{Version: version}); at.Version < until; {
		b := r.read(ctx, at, rewindTimeout)
		if b.err != nil {
			return fmt.Errorf("reading changes: %w", b.err)
		}
		for i := range b.changes {
			change := &b.changes[i]
			if _, again := seen[change.UID]; again || change.Version > until {
				continue
			}
			if err := held.grow(int64(listedBytes + len(change.UID))); err != nil {
				return err
			}
			seen[strings.Clone(change.UID)] = struct{}{}
			if err := r.restore(ctx, change, version); err != nil {
				return err
			}
		}
		r.batch.release()
		at = b.next
	}
	return nil
}

// restore records the item before a change, if the client knew it.
func (r *run) restore(ctx context.Context, change *search.Change, version uint64) error {
	r.sent.remove(change.UID)
	before := *change
	before.After = change.Before
	_, known, err := r.after(ctx, &before)
	if err != nil || !known {
		return err
	}
	return r.sent.add(change.UID, change.Cluster, change.Hub, version, r.pass, change.Before)
}
