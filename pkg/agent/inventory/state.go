package inventory

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// state is what there is on the cluster, and what of it the hub has yet to learn.
type state struct {
	// changed has an element when something may be pending.
	changed chan struct{}

	mu sync.Mutex
	// records are by UID, and members the same by resource.
	records map[string]*record
	members map[schema.GroupResource]sets.Set[*record]
	// named are the records that others may refer to by name, and referrers those
	// that do, or that refer to a UID, whether or not the target exists.
	named     map[target]*record
	referrers map[target]sets.Set[*record]
	// selectors and selected are the records with selectors, and those that these
	// may select, by namespace.
	selectors, selected map[string]sets.Set[*record]
	// edges is how many there are.
	edges int
	// total is the capacity of all nodes.
	total capacity

	pending pending
}

// pending is what the hub has yet to learn. Each part is bounded by what there is, or
// by what the hub has learnt before.
type pending struct {
	// put are new or changed records, related those with new edges.
	put, related sets.Set[*record]
	// removed are the UIDs of records that are gone, with the edges that the hub takes
	// away by itself with them; unrelated are edges that are gone while both their
	// ends remain.
	removed   map[string][]edgeName
	unrelated sets.Set[edgeName]
}

func newPending() pending {
	return pending{put: sets.New[*record](), related: sets.New[*record](), removed: map[string][]edgeName{}, unrelated: sets.New[edgeName]()}
}

func (p *pending) empty() bool {
	return len(p.put)+len(p.related)+len(p.removed)+len(p.unrelated) == 0
}

func newState() *state {
	return &state{
		changed:   make(chan struct{}, 1),
		records:   map[string]*record{},
		members:   map[schema.GroupResource]sets.Set[*record]{},
		named:     map[target]*record{},
		referrers: map[target]sets.Set[*record]{},
		selectors: map[string]sets.Set[*record]{},
		selected:  map[string]sets.Set[*record]{},
		pending:   newPending(),
	}
}

// signal wakes the reporter. It is called without the lock.
func (s *state) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// put takes over a record of an object that is new or may have changed.
func (s *state) put(r *record) {
	s.mu.Lock()
	changed := s.store(r)
	s.mu.Unlock()
	if changed {
		s.signal()
	}
}

// remove forgets an object that a resource had.
func (s *state) remove(resource schema.GroupResource, uid string) {
	s.mu.Lock()
	r := s.records[uid]
	changed := r != nil && r.resource.GroupResource() == resource
	if changed {
		s.drop(r)
	}
	s.mu.Unlock()
	if changed {
		s.signal()
	}
}

// replace makes records all that a resource has.
func (s *state) replace(resource schema.GroupResource, records []*record) {
	keep := make(sets.Set[string], len(records))
	changed := false
	s.mu.Lock()
	for _, r := range records {
		keep.Insert(r.uid)
		changed = s.store(r) || changed
	}
	for r := range s.members[resource] {
		if !keep.Has(r.uid) {
			s.drop(r)
			changed = true
		}
	}
	s.mu.Unlock()
	if changed {
		s.signal()
	}
}

// store reports whether a record changes anything.
func (s *state) store(r *record) bool {
	group := r.resource.GroupResource()
	old := s.records[r.uid]
	if old != nil && old.resource.GroupResource() != group {
		// Served by two groups, an object is that of the first that reported it.
		return false
	}
	if r.ignored {
		if old != nil {
			s.drop(old)
		}
		return old != nil
	}
	if old == nil {
		s.add(r)
		return true
	}
	if old.says(r) {
		return false
	}
	s.update(old, r)
	return true
}

func (s *state) add(r *record) {
	s.records[r.uid] = r
	insert(s.members, r.resource.GroupResource(), r)
	s.pending.put.Insert(r)
	if edges, ok := s.pending.removed[r.uid]; ok {
		// The hub will not learn that it was away, so it keeps the edges.
		delete(s.pending.removed, r.uid)
		s.pending.unrelated.Insert(edges...)
		r.known = true
	}
	s.count(r.capacity, capacity{})
	s.refer(r)
	s.relate(r)
	s.appeared(r)
}

func (s *state) update(old, r *record) {
	if string(old.properties) != string(r.properties) {
		s.pending.put.Insert(old)
	}
	s.count(r.capacity, old.capacity)
	old.resource, old.properties, old.capacity = r.resource, r.properties, r.capacity
	if old.labels != r.labels {
		old.labels = r.labels
		s.reselect(old)
	}
	if old.refersAs(r) {
		return
	}
	s.unrefer(old)
	old.references, old.selector = r.references, r.selector
	s.refer(old)
	s.relate(old)
	s.relateOwned(old)
}

func (s *state) drop(r *record) {
	delete(s.records, r.uid)
	erase(s.members, r.resource.GroupResource(), r)
	s.pending.put.Delete(r)
	s.pending.related.Delete(r)
	if r.known {
		s.pending.removed[r.uid] = nil
		for _, e := range r.out {
			if e.delivery != unsent {
				s.takenAway(r.uid, r.edgeName(e))
			}
		}
	}
	s.count(capacity{}, r.capacity)
	s.unrefer(r)
	s.edges -= len(r.out)
	r.out = nil
	s.disappeared(r)
}

// takenAway notes an edge that the hub takes away with a record, should that come back.
func (s *state) takenAway(uid string, name edgeName) {
	if edges, ok := s.pending.removed[uid]; ok {
		s.pending.removed[uid] = append(edges, name)
	}
}

func (s *state) count(now, before capacity) {
	s.total.cpu += now.cpu - before.cpu
	s.total.memory += now.memory - before.memory
}

// capacityOf is how many members a resource has, and the capacity of all nodes.
func (s *state) capacityOf(resource schema.GroupResource) (int, capacity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.members[resource]), s.total
}

// size is how many records and edges there are.
func (s *state) size() (records, edges int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records), s.edges
}

// idle reports whether the hub knows everything.
func (s *state) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.empty()
}

// begin takes what is pending, or for a full report everything. The caller must
// end the batch before it begins another.
func (s *state) begin(full bool) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &batch{full: full, taken: s.pending, resources: len(s.records), edges: s.edges}
	s.pending = newPending()
	put, related := b.taken.put, b.taken.related
	if full {
		b.puts = make([]item, 0, len(s.records))
		b.adds = make([]edgeName, 0, s.edges)
		for _, r := range s.records {
			b.put(r)
			for i := range r.out {
				b.add(r, &r.out[i])
			}
		}
		return b
	}
	for r := range put {
		b.put(r)
	}
	for r := range related {
		for i := range r.out {
			if r.out[i].delivery != delivered {
				b.add(r, &r.out[i])
			}
		}
	}
	b.removes = slices.Collect(maps.Keys(b.taken.removed))
	b.drops = slices.Collect(maps.Keys(b.taken.unrelated))
	return b
}

// end says whether the hub has taken a batch. What it may not have taken is
// pending again, as far as it is still so.
func (s *state) end(b *batch, taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken {
		if b.full {
			for _, r := range s.records {
				r.deliver()
			}
			return
		}
		for r := range b.taken.related {
			r.deliver()
		}
		return
	}
	for r := range b.taken.put {
		if s.records[r.uid] == r {
			s.pending.put.Insert(r)
		}
	}
	for r := range b.taken.related {
		if s.records[r.uid] == r {
			s.pending.related.Insert(r)
		}
	}
	for uid, edges := range b.taken.removed {
		r := s.records[uid]
		if r == nil {
			s.pending.removed[uid] = append(s.pending.removed[uid], edges...)
			continue
		}
		r.known = true
		for _, name := range edges {
			if !s.exists(name) {
				s.pending.unrelated.Insert(name)
			}
		}
	}
	for name := range b.taken.unrelated {
		if !s.exists(name) {
			s.pending.unrelated.Insert(name)
		}
	}
}

// exists reports whether there is an edge.
func (s *state) exists(name edgeName) bool {
	from, to := s.records[name.from], s.records[name.to]
	return from != nil && to != nil && from.edgeTo(to, name.relation) >= 0
}

// edgeTo is the index of an edge in out, or -1.
func (r *record) edgeTo(to *record, relation relation) int {
	return slices.IndexFunc(r.out, func(e edge) bool { return e.to == to && e.relation == relation })
}

// deliver marks the edges that were sent.
func (r *record) deliver() {
	for i := range r.out {
		if r.out[i].delivery == sent {
			r.out[i].delivery = delivered
		}
	}
}

func insert[K comparable](in map[K]sets.Set[*record], key K, r *record) {
	set := in[key]
	if set == nil {
		set = sets.New[*record]()
		in[key] = set
	}
	set.Insert(r)
}

func erase[K comparable](in map[K]sets.Set[*record], key K, r *record) {
	set := in[key]
	set.Delete(r)
	if len(set) == 0 {
		delete(in, key)
	}
}
