package history

import (
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
	again.watcher, again.events = 1, slices.Clone(seen.events)
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
		name   string
		want   Kind
		mutate func(h *recording, first *segment)
	}{
		{"a watcher misses an event", WatchMissing, func(_ *recording, s *segment) { s.events = s.events[1:] }},
		{"a watcher receives an event twice", WatchOrder, func(_ *recording, s *segment) { s.events = slices.Insert(s.events, 0, s.events[0]) }},
		{"a watcher receives two events in the wrong order", WatchOrder, func(_ *recording, s *segment) { s.events[0], s.events[1] = s.events[1], s.events[0] }},
		{"a watch resumes too early", WatchOrder, func(_ *recording, s *segment) { s.events[0].resumed = 11 }},
		{"a watcher stops early", WatchMissing, func(_ *recording, s *segment) { s.events, s.to = s.events[:4], 13 }},
		{"nobody made an acknowledged write", Unexplained, func(h *recording, _ *segment) { h.operations = h.operations[1:] }},
		{"two changes have one resource version", Revision, func(h *recording, _ *segment) { h.operations[0].value, h.operations[0].got.value = "x", "x" }},
		{"a quorum read is stale", Linearizability, func(h *recording, _ *segment) { h.operations[2].got = h.operations[0].got }},
		{"a cached read is too old", List, func(h *recording, _ *segment) { h.operations[4].got = h.operations[0].got }},
		{"a list misses an object", List, func(h *recording, _ *segment) { delete(h.lists[0].items, key) }},
		{"a list is older than requested", List, func(h *recording, _ *segment) { h.lists[0].notOlder = 13 }},
		{"a refusal has no reason", Linearizability, func(h *recording, _ *segment) {
			h.operations[0] = refusal(create, 1, metav1.StatusReasonAlreadyExists)
			h.watches, h.lists = nil, nil // no observer knows better
		}},
		{"an acknowledged delete had no effect", Linearizability, func(h *recording, _ *segment) { h.operations[6].outcome, h.operations[6].reason = OK, "" }},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := correctHistory()
			row.mutate(h, &h.watches[0])
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
