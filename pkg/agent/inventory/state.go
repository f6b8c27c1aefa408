package inventory

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// state contains the objects of the cluster, and what differs from the data of the hub.
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
	selectors, selected map[target]sets.Set[*record]
	// edges is the number of edges in record.edges of all records.
	edges int

	pending pending
	// held is the last batch of changes until the hub has applied it, or nil. pending does not contain its changes.
	held   *batch
	access accessState
}

// pending contains the changes that are not in a batch yet. Its size is bounded by the number of
// existing and of reported records.
type pending struct {
	// put contains new and changed records. related contains records whose edges may have changed.
	put, related sets.Set[*record]
	// removed contains deleted records that the hub may have, by UID, without their content.
	removed map[string]*record
}

func newPending() pending {
	return pending{put: sets.New[*record](), related: sets.New[*record](), removed: map[string]*record{}}
}

func (p *pending) size() int { return len(p.put) + len(p.related) + len(p.removed) }

func newState() *state {
	return &state{
		changed:   make(chan struct{}, 1),
		records:   map[string]*record{},
		members:   map[schema.GroupResource]sets.Set[*record]{},
		named:     map[target]*record{},
		referrers: map[target]sets.Set[*record]{},
		selectors: map[target]sets.Set[*record]{},
		selected:  map[target]sets.Set[*record]{},
		pending:   newPending(),
	}
}

// signal wakes the reporter. The caller must not hold the lock.
func (s *state) signal() { reconcile.Signal(s.changed) }

// change calls do with the lock, and wakes the reporter if it returns true.
func (s *state) change(do func() bool) {
	s.mu.Lock()
	changed := do()
	s.mu.Unlock()
	if changed {
		s.signal()
	}
}

func (s *state) put(r *record) {
	s.change(func() bool { return s.store(r) })
}

func (s *state) remove(resource schema.GroupResource, uid string) {
	s.change(func() bool {
		r := s.records[uid]
		if r == nil || r.resource.GroupResource() != resource {
			return false
		}
		s.drop(r)
		return true
	})
}

func (s *state) replace(resource schema.GroupResource, records []*record) {
	s.change(func() (changed bool) {
		keep := make(sets.Set[string], len(records))
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
		return changed
	})
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
	if former := s.pending.removed[r.uid]; former != nil {
		// The deletion is no longer pending, so the hub keeps the record and its edges.
		delete(s.pending.removed, r.uid)
		r.known, r.edges = true, former.edges
		s.edges += len(r.edges)
	}
	s.refer(r)
	s.pending.related.Insert(r)
	s.relink(r)
}

func (s *state) update(old, r *record) {
	if string(old.properties) != string(r.properties) || s.access.accepted && string(old.access) != string(r.access) {
		s.pending.put.Insert(old)
	}
	s.access.count(old, -1)
	old.resource, old.properties, old.access, old.omitted = r.resource, r.properties, r.access, r.omitted
	s.access.count(old, 1)
	if old.labels != r.labels {
		s.relinkSelectors(old)
		old.labels = r.labels
		s.relinkSelectors(old)
	}
	if old.refersAs(r) {
		return
	}
	s.unrefer(old)
	old.references, old.selector = r.references, r.selector
	s.refer(old)
	s.pending.related.Insert(old)
	s.relinkOwned(old)
}

func (s *state) drop(r *record) {
	delete(s.records, r.uid)
	s.access.count(r, -1)
	erase(s.members, r.resource.GroupResource(), r)
	s.pending.put.Delete(r)
	s.pending.related.Delete(r)
	if r.known {
		// Only its UID and edges are still needed. In an outage of the hub, many may be pending.
		r.properties, r.access = nil, nil
		s.pending.removed[r.uid] = r
	}
	s.unrefer(r)
	s.edges -= len(r.edges)
	s.relink(r)
}

func (s *state) backlog() Backlog {
	s.mu.Lock()
	defer s.mu.Unlock()
	backlog := Backlog{Objects: len(s.records), Edges: s.edges, Changed: len(s.pending.put) + len(s.pending.related), Deleted: len(s.pending.removed)}
	if s.held != nil {
		backlog.Changed += len(s.held.added) + len(s.held.updated) + len(s.held.adds) + len(s.held.drops)
		backlog.Deleted += len(s.held.removes)
	}
	return backlog
}

// idle reports whether nothing is to report, and whether changes of RBAC objects are.
func (s *state) idle() (idle, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.describe()
	return s.held == nil && s.pending.size() == 0, s.access.urgent || s.held != nil && s.held.urgent
}

// begin returns a batch of the pending changes, or of all records for a full report. Until the hub has applied
// a batch of changes, it returns the same one again, which the hub may apply twice.
func (s *state) begin(full bool) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.describe()
	if s.held != nil && !full {
		return s.held
	}
	b, changes := &batch{full: full, access: s.access.accepted, urgent: s.access.urgent}, s.pending
	s.pending, s.access.urgent, s.held = newPending(), false, nil
	if full {
		changes.related = sets.New(slices.Collect(maps.Values(s.records))...)
		b.added = make([]item, 0, len(s.records))
		for _, r := range s.records {
			b.put(r)
		}
	} else {
		s.held = b
		for r := range changes.put {
			b.put(r)
		}
		for uid := range changes.removed {
			b.removes = append(b.removes, inventory.Deleted{UID: uid})
		}
	}
	for r := range changes.related {
		s.relate(r, b)
	}
	b.resources, b.edges = len(s.records), s.edges
	return b
}

// applied records that the hub has applied the last batch.
func (s *state) applied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = nil
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

type resource struct {
	schema.GroupVersionResource
	kind string
	// reported is false for a resource that is watched only for discovery or for the
	// properties of other objects.
	reported bool
}

// record is the part of an object that stays in memory.
type record struct {
	resource *resource
	// uid is "<cluster>/<uid>".
	uid, namespace, name string
	// properties is a JSON object. It is replaced, never modified.
	properties []byte
	// access contains the members of the JSON object that only hubs with Response.Access receive. It is replaced,
	// never modified. omitted is true for an RBAC object whose content is too large.
	access     []byte
	omitted    bool
	references []reference
	// labels are the labels of an object that selectors can match, encoded by selectable.
	labels string
	// selector contains the terms of the object's selector.
	selector []string
	// ignored is true if the object is not reported.
	ignored bool

	// edges are the edges from this record in the reports. Only the state uses them and known.
	edges []edge
	// known is true if a report contained the record.
	known bool
}

// GetObjectKind implements runtime.Object. It allows a reflector to store records instead of
// objects in the list that it assembles from pages.
func (r *record) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns a copy that shares the immutable parts.
func (r *record) DeepCopyObject() runtime.Object {
	copied := *r
	return &copied
}

func (r *record) says(other *record) bool {
	return bytes.Equal(r.properties, other.properties) && bytes.Equal(r.access, other.access) && r.refersAs(other) &&
		r.labels == other.labels && *r.resource == *other.resource
}

func (r *record) refersAs(other *record) bool {
	return slices.Equal(r.references, other.references) && slices.Equal(r.selector, other.selector)
}

type edge struct {
	// to is the UID of the target.
	to       string
	relation relation
}
