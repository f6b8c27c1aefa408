package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// change is a change of one object, by its resource version.
type change struct {
	key string
	// version is the object after the change, or the last one if deleted is true.
	version
	deleted bool
	// source is the first observer.
	source string
}

func (c change) String() string {
	if c.deleted {
		return fmt.Sprintf("deletion of %s@%d", c.value, c.rv)
	}
	return c.version.String()
}

// gap is a range of resource versions, without its begin, that no watcher covers.
type gap struct{ from, to int64 }

// reference is the order of all changes that anybody saw.
type reference struct {
	changes map[int64]change
	// revisions are the sorted keys of changes. timelines contain the changes of each object in their order.
	revisions []int64
	timelines map[string][]change
	gaps      []gap
	// restored is nil if the data were not restored. surviving are then the timelines without lost changes.
	restored  *restoration
	surviving map[string][]change
}

// newReference collects the changes. It reports each resource version that belongs to two changes.
func (h *recording) newReference() *reference {
	ref := &reference{changes: map[int64]change{}, timelines: map[string][]change{}}
	add := func(c change) {
		previous, ok := ref.changes[c.rv]
		if !ok {
			ref.changes[c.rv] = c
			return
		}
		if previous.key != c.key || previous.version != c.version || previous.deleted != c.deleted {
			h.report(Revision, c.key, "resource version %d is %s of %s for %s, but %s of %s for %s", c.rv, previous, previous.key, previous.source, c, c.key, c.source)
		}
	}
	for _, o := range h.operations {
		if o.outcome == OK && o.got.exists {
			add(change{key: o.key, version: o.got, source: fmt.Sprintf("client %d (%s)", o.client, o.kind)})
		}
	}
	for _, l := range h.lists {
		for key, v := range l.items {
			add(change{key: key, version: v, source: fmt.Sprintf("client %d (list)", l.client)})
		}
	}
	for _, s := range h.watches {
		for key, v := range s.items {
			add(change{key: key, version: v, source: fmt.Sprintf("watcher %d (list)", s.watcher)})
		}
		for _, e := range s.events {
			if e.kind != watch.Bookmark {
				add(change{key: e.key, version: e.version, deleted: e.kind == watch.Deleted, source: fmt.Sprintf("watcher %d", s.watcher)})
			}
		}
	}
	for rv, c := range ref.changes {
		ref.revisions = append(ref.revisions, rv)
		ref.timelines[c.key] = append(ref.timelines[c.key], c)
	}
	slices.Sort(ref.revisions)
	for _, timeline := range ref.timelines {
		slices.SortFunc(timeline, func(a, b change) int { return cmp.Compare(a.rv, b.rv) })
	}
	ref.gaps = h.gaps()
	if ref.restored = h.restored; ref.restored != nil {
		ref.surviving = map[string][]change{}
		for key, timeline := range ref.timelines {
			ref.surviving[key] = slices.DeleteFunc(slices.Clone(timeline), func(c change) bool {
				return c.rv > h.restored.revision && c.rv < h.restored.from
			})
		}
	}
	return ref
}

// gaps returns the ranges that no watcher covers, in their order.
func (h *recording) gaps() []gap {
	if len(h.watches) == 0 {
		return []gap{{0, math.MaxInt64}}
	}
	segments := slices.SortedFunc(slices.Values(h.watches), func(a, b segment) int { return cmp.Compare(a.from, b.from) })
	var out []gap
	covered := segments[0].to
	for _, s := range segments[1:] {
		if s.from > covered {
			out = append(out, gap{covered, s.from})
		}
		covered = max(covered, s.to)
	}
	if covered < h.fence {
		out = append(out, gap{covered, math.MaxInt64})
	}
	return out
}

// complete reports whether the reference has every change after from, up to to.
func (ref *reference) complete(from, to int64) bool {
	return !slices.ContainsFunc(ref.gaps, func(g gap) bool { return g.from < to && g.to > from })
}

// at returns the last change of an object up to a resource version, and whether there is a later one.
func (ref *reference) at(key string, rv int64) (last, next change) {
	timeline := ref.timelines[key]
	if ref.restored != nil && rv >= ref.restored.from {
		timeline = ref.surviving[key]
	}
	i := sort.Search(len(timeline), func(i int) bool { return timeline[i].rv > rv })
	if i > 0 {
		last = timeline[i-1]
	}
	if i < len(timeline) {
		next = timeline[i]
	}
	return last, next
}

// written identifies what a write writes: the value of an object, or the deletion of one.
type written struct {
	key, value string
	deleted    types.UID
}

func (o operation) writes() written {
	if o.kind == remove {
		return written{key: o.key, deleted: o.uid}
	}
	return written{key: o.key, value: o.value}
}

func (c change) writes() written {
	if c.deleted {
		return written{key: c.key, deleted: c.uid}
	}
	return written{key: c.key, value: c.value}
}

// decide gives unknown operations the outcome OK if their effect was seen, drops them if they had none, and
// otherwise sets until. It reports changes that no operation made.
func (h *recording) decide(ref *reference) []operation {
	changes := map[written][]change{}
	for _, rv := range ref.revisions {
		c := ref.changes[rv]
		changes[c.writes()] = append(changes[c.writes()], c)
	}
	writes := map[written][]*operation{}
	operations := slices.Clone(h.operations)
	slices.SortStableFunc(operations, func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	for i := range operations {
		o := &operations[i]
		if o.kind.writes() && (o.outcome == OK || o.outcome == Unknown) {
			writes[o.writes()] = append(writes[o.writes()], o)
		}
	}
	for what, seen := range changes {
		if len(seen) > len(writes[what]) {
			h.report(Unexplained, what.key, "%v: %d requests could have made these changes", seen, len(writes[what]))
		}
	}

	newest := h.newestSeen()
	for what, of := range writes {
		seen := changes[what]
		for _, o := range of {
			if o.outcome != OK {
				continue
			}
			if what.deleted != "" && len(seen) > 0 {
				o.got.rv = seen[0].rv
			}
			seen = slices.DeleteFunc(slices.Clone(seen), func(c change) bool { return c.rv == o.got.rv })
		}
		for _, o := range of {
			if o.outcome != Unknown {
				continue
			}
			// The first of the changes belongs to the first of the requests, or the order would be less likely.
			if len(seen) > 0 {
				o.outcome = OK
				if o.kind == remove {
					o.got.rv = seen[0].rv
				} else {
					o.got = seen[0].version
				}
				seen = seen[1:]
				continue
			}
			for _, g := range ref.gaps {
				if g.to > newest(o.call) {
					o.until = g.to
				}
			}
		}
	}
	return slices.DeleteFunc(operations, func(o operation) bool {
		return o.outcome == Unknown && o.until == 0
	})
}

// newestSeen returns a function that returns the largest resource version that a client saw before a time.
func (h *recording) newestSeen() func(time.Duration) int64 {
	type seen struct {
		at time.Duration
		rv int64
	}
	var all []seen
	for _, o := range h.operations {
		if o.outcome == OK {
			all = append(all, seen{o.ret, o.got.rv})
		}
	}
	for _, l := range h.lists {
		all = append(all, seen{l.ret, l.rv})
	}
	slices.SortFunc(all, func(a, b seen) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(all); i++ {
		all[i].rv = max(all[i].rv, all[i-1].rv)
	}
	return func(at time.Duration) int64 {
		i := sort.Search(len(all), func(i int) bool { return all[i].at >= at })
		if i == 0 {
			return 0
		}
		return all[i-1].rv
	}
}
