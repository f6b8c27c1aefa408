package history

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/anishathalye/porcupine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// maximumReports is the maximum number of violations of one kind in a result.
const maximumReports = 20

// recording is everything that the clients and the watchers of a run have seen.
type recording struct {
	// dir receives the drawings, if set.
	dir        string
	operations []operation
	lists      []list
	watches    []segment
	// fence is the resource version that each watcher must reach.
	fence int64
	// restored is nil if the data were not restored from a snapshot.
	restored *restoration

	violations []Violation
	reported   map[Kind]int
}

// check returns the violations. It returns an error if ctx ends or a file cannot be written.
func (h *recording) check(ctx context.Context) ([]Violation, error) {
	h.reported = map[Kind]int{}
	ref := h.newReference()
	operations := h.decide(ref)
	h.checkLists(ref)
	h.checkCachedReads(ref)
	for i, s := range h.watches {
		last := i == len(h.watches)-1 || h.watches[i+1].watcher != s.watcher
		h.checkWatch(ref, s, last)
	}
	err := h.checkObjects(ctx, ref, operations)
	for kind, n := range h.reported {
		if n > maximumReports {
			h.violations = append(h.violations, Violation{Kind: kind, Text: fmt.Sprintf("%d more", n-maximumReports)})
		}
	}
	slices.SortStableFunc(h.violations, func(a, b Violation) int {
		return slices.Compare([]string{string(a.Kind), a.Key}, []string{string(b.Kind), b.Key})
	})
	return h.violations, err
}

func (h *recording) report(kind Kind, key, format string, args ...any) {
	h.reported[kind]++
	if h.reported[kind] <= maximumReports {
		h.violations = append(h.violations, Violation{Kind: kind, Key: key, Text: fmt.Sprintf(format, args...)})
	}
}

// checkObjects checks that the operations of each object are linearizable. A quorum list reads each of its
// objects.
func (h *recording) checkObjects(ctx context.Context, ref *reference, operations []operation) error {
	objects := map[string][]porcupine.Operation{}
	add := func(o operation) {
		objects[o.key] = append(objects[o.key], porcupine.Operation{ClientId: o.client, Input: o, Call: int64(o.call), Return: int64(o.ret)})
	}
	for _, o := range operations {
		if !o.cached {
			add(o)
		}
	}
	for _, l := range h.lists {
		if l.cached {
			continue
		}
		for _, key := range l.keys {
			read := operation{client: l.client, key: key, kind: get, call: l.call, ret: l.ret, outcome: OK, got: l.items[key]}
			if !read.got.exists {
				read.outcome, read.reason = Refused, string(metav1.StatusReasonNotFound)
			}
			add(read)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r := h.restored; r != nil {
			state, _ := ref.at(key, r.revision)
			if state.deleted {
				state.version = version{rv: state.rv}
			}
			if !ref.complete(state.rv, r.revision) {
				h.report(Undecided, key, "no watcher saw the state at the revision %d of the snapshot", r.revision)
				continue
			}
			add(operation{client: numberOfClients, key: key, kind: restore, call: r.at, ret: r.at + 1, outcome: OK, got: state.version})
		}
		switch porcupine.CheckOperationsTimeout(model, objects[key], checkTimeout) {
		case porcupine.Illegal:
			if err := h.explain(key, objects[key]); err != nil {
				return err
			}
		case porcupine.Unknown:
			h.report(Undecided, key, "the check of %d operations took longer than %s", len(objects[key]), checkTimeout)
		}
	}
	return nil
}

// explain reports an object that is not linearizable, and draws its history.
func (h *recording) explain(key string, operations []porcupine.Operation) error {
	_, info := porcupine.CheckOperationsVerbose(model, operations, checkTimeout)
	text := fmt.Sprintf("%d operations have no possible order", len(operations))
	if first, after, ok := firstUnordered(operations, info); ok {
		text = fmt.Sprintf("no possible order contains %s of client %d at %s; the longest order ends with %s", first, first.client, first.ret.Round(1000), after)
	}
	if h.dir != "" && h.reported[Linearizability] < maximumReports {
		path := filepath.Join(h.dir, key+".html")
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		err = porcupine.Visualize(model, info, file)
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		text += "; drawn in " + path
	}
	h.report(Linearizability, key, "%s", text)
	return nil
}

// firstUnordered returns the first operation to return that the longest possible order does not contain, and
// the last operation of this order.
func firstUnordered(operations []porcupine.Operation, info porcupine.LinearizationInfo) (first, last operation, ok bool) {
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	ordered := map[operation]int{}
	for _, o := range longest {
		last = o.Input.(operation)
		ordered[last]++
	}
	for _, candidate := range operations {
		o := candidate.Input.(operation)
		if ordered[o] > 0 {
			ordered[o]--
		} else if !ok || o.ret < first.ret {
			first, ok = o, true
		}
	}
	return first, last, ok
}

// checkLists checks that each list is the state at its resource version.
func (h *recording) checkLists(ref *reference) {
	for _, l := range h.lists {
		who := fmt.Sprintf("list of client %d at %s", l.client, l.ret.Round(1000))
		if l.rv < l.notOlder {
			h.report(List, "", "%s has resource version %d, which is older than %d", who, l.rv, l.notOlder)
		}
		h.checkSnapshot(ref, who, l.keys, l.items, l.rv)
	}
	keys := slices.Sorted(maps.Keys(ref.timelines))
	for _, s := range h.watches {
		h.checkSnapshot(ref, fmt.Sprintf("list of watcher %d", s.watcher), keys, s.items, s.from)
	}
}

func (h *recording) checkSnapshot(ref *reference, who string, keys []string, items map[string]version, rv int64) {
	for _, key := range keys {
		last, _ := ref.at(key, rv)
		if item := items[key]; item.exists && last.version != item {
			h.report(List, key, "%s at resource version %d contains %s, not %s", who, rv, item, last)
		} else if !item.exists && last.exists && !last.deleted && ref.complete(last.rv, rv) {
			h.report(List, key, "%s at resource version %d does not contain %s", who, rv, last)
		}
	}
}

// checkCachedReads checks that each read with a resource version is not older than that.
func (h *recording) checkCachedReads(ref *reference) {
	for _, o := range h.operations {
		if !o.cached || o.rv == 0 {
			continue
		}
		rv := o.rv
		if r := h.restored; r != nil && rv < r.from {
			if o.ret >= r.at && o.call <= r.at {
				continue
			}
			if o.call > r.at {
				rv = min(rv, r.revision)
			}
		}
		last, next := ref.at(o.key, rv)
		switch {
		case o.got.exists && o.got.rv < last.rv:
			h.report(List, o.key, "%s of client %d at %s is older than %s", o, o.client, o.ret.Round(1000), last)
		case o.outcome == Refused && last.exists && !last.deleted && next.rv == 0 && ref.complete(last.rv, h.fence):
			h.report(List, o.key, "%s of client %d at %s, but %s was never deleted", o, o.client, o.ret.Round(1000), last)
		}
	}
}

// checkWatch checks one segment. last is true for the last segment of a watcher.
func (h *recording) checkWatch(ref *reference, s segment, last bool) {
	objects := map[string]version{}
	maps.Copy(objects, s.items)
	received := map[int64]bool{}
	at := s.from
	for _, e := range s.events {
		rv := e.version.rv
		if e.resumed != 0 && rv < e.resumed || rv < at || rv == at && e.kind != watch.Bookmark {
			h.report(WatchOrder, e.key, "watcher %d received %s %s after resource version %d", s.watcher, e.kind, e.version, at)
			received[rv] = true
			continue
		}
		at = rv
		if e.kind == watch.Bookmark {
			continue
		}
		received[rv] = true
		before := objects[e.key]
		switch {
		case before.exists != (e.kind != watch.Added),
			before.exists && before.uid != e.version.uid,
			e.kind == watch.Deleted && before.value != e.version.value:
			h.report(WatchOrder, e.key, "watcher %d received %s %s after %s", s.watcher, e.kind, e.version, before)
		}
		if e.kind == watch.Deleted {
			delete(objects, e.key)
		} else {
			objects[e.key] = e.version
		}
	}
	if r := h.restored; r != nil && s.from < r.from && s.to >= r.from {
		h.report(WatchMissing, "", "watcher %d continued from resource version %d across the restore to %d, want a new list", s.watcher, s.from, s.to)
	}
	for _, rv := range ref.revisions {
		if rv > s.from && rv <= s.to && !received[rv] {
			c := ref.changes[rv]
			h.report(WatchMissing, c.key, "watcher %d received changes up to resource version %d, but not %s, which %s saw", s.watcher, s.to, c, c.source)
		}
	}
	if !last {
		return
	}
	if s.to < h.fence {
		h.report(WatchMissing, "", "watcher %d received changes up to resource version %d only, of %d", s.watcher, s.to, h.fence)
		return
	}
	deleted := map[types.UID]bool{}
	for _, o := range h.operations {
		if o.kind == remove && o.outcome == OK && (h.restored == nil || o.call > h.restored.at) {
			deleted[o.uid] = true
		}
	}
	for key, v := range objects {
		if deleted[v.uid] {
			h.report(WatchMissing, key, "watcher %d did not receive the deletion of %s", s.watcher, v)
		}
	}
}
