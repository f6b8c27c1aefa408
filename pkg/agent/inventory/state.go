package inventory

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// state contains the objects of the cluster, and the changes that are not reported yet.
type state struct {
	// changed contains an element if changes may be pending.
	changed chan struct{}

	mu sync.Mutex
	// records are indexed by UID, and members by resource and UID.
	records map[string]*record
	members map[schema.GroupResource]sets.Set[*record]
	// named indexes the records that other records can refer to by name. referrers indexes records
	// by the targets of their references, even if the target does not exist.
	named     map[target]*record
	referrers map[target]sets.Set[*record]
	// selectors contains the records that have selectors. selected contains the records that
	// selectors can match. Both are indexed by namespace.
	selectors, selected map[string]sets.Set[*record]
	// edges is the number of edges.
	edges int

	pending pending
	access  accessState
}

// pending contains the changes that are not reported yet. Its size is bounded by the number of
// existing and of reported records and edges.
type pending struct {
	// put contains new and changed records, and related contains records with new edges.
	put, related sets.Set[*record]
	// removed contains the UIDs of deleted records, with the edges that the hub deletes with them.
	// unrelated contains deleted edges between records that remain.
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

// signal wakes the reporter. The caller must not hold the lock.
func (s *state) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// put stores the record of a new or changed object.
func (s *state) put(r *record) {
	s.mu.Lock()
	changed := s.store(r)
	s.mu.Unlock()
	if changed {
		s.signal()
	}
}

// remove removes an object of a resource.
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

// replace replaces all records of a resource with the given records.
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

// store stores a record and reports whether the state has changed.
func (s *state) store(r *record) bool {
	group := r.resource.GroupResource()
	old := s.records[r.uid]
	if old != nil && old.resource.GroupResource() != group {
		// If two groups serve an object, the object belongs to the group that reported it first.
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
	s.access.count(r, 1)
	insert(s.members, r.resource.GroupResource(), r)
	s.pending.put.Insert(r)
	if edges, ok := s.pending.removed[r.uid]; ok {
		// The deletion is no longer pending, so the hub keeps the edges.
		delete(s.pending.removed, r.uid)
		s.pending.unrelated.Insert(edges...)
		r.known = true
	}
	s.refer(r)
	s.relate(r)
	s.appeared(r)
}

func (s *state) update(old, r *record) {
	if string(old.properties) != string(r.properties) || s.access.accepted && string(old.access) != string(r.access) {
		s.pending.put.Insert(old)
	}
	s.access.count(old, -1)
	old.resource, old.properties, old.access, old.omitted = r.resource, r.properties, r.access, r.omitted
	s.access.count(old, 1)
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
	s.access.count(r, -1)
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
	s.unrefer(r)
	s.edges -= len(r.out)
	r.out = nil
	s.disappeared(r)
}

// takenAway records an edge that the hub deletes with a record, in case the record is created
// again.
func (s *state) takenAway(uid string, name edgeName) {
	if edges, ok := s.pending.removed[uid]; ok {
		s.pending.removed[uid] = append(edges, name)
	}
}

// size returns the number of records and edges.
func (s *state) size() (records, edges int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records), s.edges
}

// idle reports whether nothing is pending, and whether changes of RBAC objects are.
func (s *state) idle() (idle, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.describe()
	return s.pending.empty(), s.access.urgent
}

// begin returns a batch of the pending changes, or of all records for a full report. The caller
// must end the batch before it begins another.
func (s *state) begin(full bool) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.describe()
	b := &batch{full: full, taken: s.pending, resources: len(s.records), edges: s.edges, access: s.access.accepted, urgent: s.access.urgent}
	s.pending, s.access.urgent = newPending(), false
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

// end completes a batch. If the hub may not have applied the batch, its changes that are still
// current become pending again.
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
	s.access.urgent = s.access.urgent || b.urgent
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

// exists reports whether an edge exists.
func (s *state) exists(name edgeName) bool {
	from, to := s.records[name.from], s.records[name.to]
	return from != nil && to != nil && from.edgeTo(to, name.relation) >= 0
}

// edgeTo returns the index of an edge in out, or -1.
func (r *record) edgeTo(to *record, relation relation) int {
	return slices.IndexFunc(r.out, func(e edge) bool { return e.to == to && e.relation == relation })
}

// deliver marks the sent edges as delivered.
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
