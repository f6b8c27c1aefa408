package inventory

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

// maxOwners is the maximum number of levels of owners that the agent follows.
const maxOwners = 8

// refer indexes a record as a target and as the source of its references.
func (s *state) refer(r *record) {
	if name, ok := r.target(); ok {
		s.named[name] = r
	}
	for _, reference := range r.references {
		insert(s.referrers, reference.target, r)
	}
	if len(r.selector) > 0 {
		insert(s.selectors, r.namespace, r)
	}
	if r.resource.GroupResource() == pods {
		insert(s.selected, r.namespace, r)
	}
}

func (s *state) unrefer(r *record) {
	if name, ok := r.target(); ok && s.named[name] == r {
		delete(s.named, name)
	}
	for _, reference := range r.references {
		erase(s.referrers, reference.target, r)
	}
	if len(r.selector) > 0 {
		erase(s.selectors, r.namespace, r)
	}
	if r.resource.GroupResource() == pods {
		erase(s.selected, r.namespace, r)
	}
}

// target returns the target by which other records refer to this record by name, if one exists.
func (r *record) target() (target, bool) {
	class, ok := classes[r.resource.GroupResource()]
	return target{class, r.namespace, r.name}, ok
}

func (s *state) resolve(t target) *record {
	if t.class == byUID {
		return s.records[t.name]
	}
	return s.named[t]
}

// relink marks the records that may have an edge to a new or deleted record.
func (s *state) relink(r *record) {
	s.relinkOwned(r)
	if name, ok := r.target(); ok {
		for referrer := range s.referrers[name] {
			s.pending.related.Insert(referrer)
		}
	}
	s.relinkSelectors(r)
}

// relinkOwned marks all direct and indirect dependents of a record, because each dependent has edges
// to the owners of its owners.
func (s *state) relinkOwned(r *record) {
	seen := sets.New(r)
	level := []*record{r}
	for depth := 0; depth < maxOwners && len(level) > 0; depth++ {
		var next []*record
		for _, owner := range level {
			for owned := range s.referrers[target{class: byUID, name: owner.uid}] {
				if !seen.Has(owned) {
					seen.Insert(owned)
					s.pending.related.Insert(owned)
					next = append(next, owned)
				}
			}
		}
		level = next
	}
}

// relinkSelectors marks the records whose selector matches a record.
func (s *state) relinkSelectors(r *record) {
	if r.resource.GroupResource() != pods {
		return
	}
	for selector := range s.selectors[r.namespace] {
		if selects(selector.selector, r.labels) {
			s.pending.related.Insert(selector)
		}
	}
}

// relate updates the edges from a record, and adds the changes to a batch.
func (s *state) relate(r *record, b *batch) {
	if len(r.references)+len(r.selector)+len(r.edges) == 0 {
		return
	}
	wanted := s.wanted(r)
	s.edges -= len(r.edges)
	r.edges = slices.DeleteFunc(r.edges, func(e edge) bool {
		if wanted.Has(e.end) {
			wanted.Delete(e.end)
			return false
		}
		b.left = append(b.left, formerEdge{r.uid, e.end})
		// The hub deletes the edges to a deleted record with the record.
		if to := s.records[e.to]; to != nil && !b.full {
			b.drops = append(b.drops, reportedEdge(r, to, e.relation))
		}
		return true
	})
	for end := range wanted {
		r.edges = append(r.edges, edge{end: end})
	}
	s.edges += len(r.edges)
	for _, e := range r.edges {
		if b.full || !e.delivered {
			b.adds = append(b.adds, reportedEdge(r, s.records[e.to], e.relation))
		}
	}
}

func reportedEdge(from, to *record, relation relation) inventory.Edge {
	return inventory.Edge{
		SourceUID: from.uid, SourceKind: from.resource.kind, DestUID: to.uid, DestKind: to.resource.kind, EdgeType: relationNames[relation],
	}
}

// wanted returns the edges that a record must have.
func (s *state) wanted(r *record) sets.Set[end] {
	wanted := sets.New[end]()
	want := func(to *record, relation relation) {
		if to != nil && to != r {
			wanted.Insert(end{to.uid, relation})
		}
	}
	for _, reference := range r.references {
		want(s.resolve(reference.target), reference.relation)
	}
	for _, owner := range s.ownersOf(r) {
		want(owner, ownedBy)
	}
	if len(r.selector) > 0 {
		for pod := range s.selected[r.namespace] {
			if selects(r.selector, pod.labels) {
				want(pod, usedBy)
			}
		}
	}
	return wanted
}

// ownersOf returns the direct and indirect owners of a record.
func (s *state) ownersOf(r *record) []*record {
	var found []*record
	level := []*record{r}
	for depth := 0; depth < maxOwners && len(level) > 0; depth++ {
		var next []*record
		for _, owned := range level {
			for _, reference := range owned.references {
				if reference.relation != ownedBy {
					continue
				}
				if owner := s.resolve(reference.target); owner != nil && !slices.Contains(found, owner) {
					found = append(found, owner)
					next = append(next, owner)
				}
			}
		}
		level = next
	}
	return found
}
