package history

import (
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// correctHistory returns a history without violations. It contains each operation that a mutation changes: writes, a
// quorum read after a write, a cached read of an object that is older than the requested resource version, a refused
// delete, a list, and two watches.
func correctHistory() *recording {
	const other = "other"
	readFromCache := operation{key: key, kind: get, call: 9, ret: 10, outcome: OK, cached: true, rv: 12, got: version{exists: true, uid: "u", value: "b", rv: 11}}
	update := confirmedWrite(update, 3, "b", 11)
	update.uid, update.rv = "u", 10
	created := confirmedWrite(create, 7, "c", 12)
	created.key, created.got.uid = other, "v"
	deletion := operation{key: key, kind: remove, call: 13, ret: 14, outcome: OK, uid: "u"}
	seen := segment{from: 1, to: 14, events: []event{
		received(watch.Added, "a", 10), received(watch.Modified, "b", 11), {kind: watch.Added, key: other, version: created.got},
		received(watch.Deleted, "b", 13), {kind: watch.Bookmark, version: version{rv: 14}},
	}}
	again := seen
	again.watcher = 1
	return &recording{
		operations: []operation{
			confirmedWrite(create, 1, "a", 10), update, quorumRead(5, "b", 11), created, readFromCache, deletion, refusal(remove, 15, metav1.StatusReasonNotFound),
		},
		lists: []list{{
			call: 11, ret: 12, keys: []string{key, other}, rv: 12, cached: true, notOlder: 12,
			items: map[string]version{key: update.got, other: created.got},
		}},
		watches: []segment{seen, again},
		fence:   14,
	}
}

// TestMutations checks that the checker finds each change of a correct history.
func TestMutations(t *testing.T) {
	t.Parallel()
	if violations, err := correctHistory().check(t.Context()); err != nil || len(violations) > 0 {
		t.Fatalf("violations of the correct history = %v, %v, want none", violations, err)
	}
	for _, row := range []struct {
		name string
		want Kind
		// mutate changes a history. It returns false if the history lacks the operations.
		mutate func(h *recording) bool
	}{
		{"a watcher misses an event", WatchMissing, func(h *recording) bool {
			s := &h.watches[0]
			i := slices.IndexFunc(s.events, isChange)
			s.events = slices.Delete(s.events, i, i+1)
			return true
		}},
		{"a watcher receives an event twice", WatchOrder, func(h *recording) bool {
			s := &h.watches[0]
			i := slices.IndexFunc(s.events, isChange)
			s.events = slices.Insert(s.events, i, s.events[i])
			return true
		}},
		{"a watcher receives two events in the wrong order", WatchOrder, func(h *recording) bool {
			s := &h.watches[0]
			i := slices.IndexFunc(s.events, isChange)
			s.events[i], s.events[i+1] = s.events[i+1], s.events[i]
			return isChange(s.events[i])
		}},
		{"a watch resumes too early", WatchOrder, func(h *recording) bool {
			s := &h.watches[0]
			i := slices.IndexFunc(s.events, isChange)
			s.events[i].resumed = s.events[i].version.rv + 1
			return true
		}},
		{"a watcher stops early", WatchMissing, func(h *recording) bool {
			s := &h.watches[len(h.watches)-1]
			s.events = s.events[:len(s.events)-1]
			s.to = h.fence - 1
			return true
		}},
		{"nobody made an acknowledged write", Unexplained, func(h *recording) bool {
			i := slices.IndexFunc(h.operations, func(o operation) bool { return o.outcome == OK && o.value != "" })
			h.operations = slices.Delete(h.operations, i, i+1)
			return true
		}},
		{"two changes have one resource version", Revision, func(h *recording) bool {
			i := slices.IndexFunc(h.operations, func(o operation) bool { return o.outcome == OK && o.value != "" })
			h.operations[i].value += "-other"
			h.operations[i].got.value += "-other"
			return true
		}},
		{"a quorum read is stale", Linearizability, func(h *recording) bool {
			for i := range h.operations {
				write := h.operations[i]
				if write.outcome != OK || write.kind != update {
					continue
				}
				for j := range h.operations {
					if read := &h.operations[j]; read.outcome == OK && read.kind == get && !read.cached && read.key == write.key && read.call > write.ret && read.got.uid == write.got.uid {
						read.got = previous(h, write)
						return read.got.exists
					}
				}
			}
			return false
		}},
		{"a cached read is too old", List, func(h *recording) bool {
			for i := range h.operations {
				if o := &h.operations[i]; o.cached && o.outcome == OK && o.rv > o.got.rv {
					if old := previous(h, *o); old.exists {
						o.got = old
						return true
					}
				}
			}
			return false
		}},
		{"a list misses an object", List, func(h *recording) bool {
			for i := range h.lists {
				l := &h.lists[i]
				for key := range l.items {
					l.items = maps.Clone(l.items)
					delete(l.items, key)
					return true
				}
			}
			return false
		}},
		{"a list is older than requested", List, func(h *recording) bool {
			h.lists[0].notOlder = h.lists[0].rv + 1
			return true
		}},
		{"a refusal has no reason", Linearizability, func(h *recording) bool {
			i := slices.IndexFunc(h.operations, func(o operation) bool { return o.outcome == OK && o.kind == create })
			h.operations[i].outcome, h.operations[i].reason, h.operations[i].got = Refused, "AlreadyExists", version{}
			h.watches = nil // no observer knows better
			h.lists = nil
			return true
		}},
		{"an acknowledged delete had no effect", Linearizability, func(h *recording) bool {
			i := slices.IndexFunc(h.operations, func(o operation) bool { return o.outcome == Refused && o.kind == remove && o.reason == "NotFound" })
			if i >= 0 {
				h.operations[i].outcome, h.operations[i].reason = OK, ""
			}
			return i >= 0
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := correctHistory()
			for i := range h.watches {
				h.watches[i].events = slices.Clone(h.watches[i].events)
			}
			if !row.mutate(h) {
				t.Fatal("the history does not contain the operations")
			}
			violations, err := h.check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(violations, func(v Violation) bool { return v.Kind == row.want }) {
				t.Errorf("violations = %v, want kind %s", violations, row.want)
			}
		})
	}
}

func isChange(e event) bool { return e.kind != watch.Bookmark }

// previous returns the version of an object before that of an operation.
func previous(h *recording, o operation) version {
	var out version
	for _, other := range h.operations {
		if other.outcome == OK && other.key == o.key && other.got.uid == o.got.uid && other.got.rv < o.got.rv && other.got.rv > out.rv {
			out = other.got
		}
	}
	return out
}
