package inventory

import "slices"

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

// appeared adds the edges to a new record from the records that refer to it.
func (s *state) appeared(r *record) {
	s.relateOwned(r)
	if name, ok := r.target(); ok {
		for referrer := range s.referrers[name] {
			s.relate(referrer)
		}
	}
	s.reselect(r)
}

// disappeared removes the edges to a record. The hub deletes these edges with the record, so they
// are not pending.
func (s *state) disappeared(r *record) {
	s.appeared(r)
}

// relateOwned updates the edges of all direct and indirect dependents of a record, because each
// dependent has edges to the owners of its owners.
func (s *state) relateOwned(r *record) {
	seen := map[*record]bool{r: true}
	level := []*record{r}
	for depth := 0; depth < maxOwners && len(level) > 0; depth++ {
		var next []*record
		for _, owner := range level {
			for owned := range s.referrers[target{class: byUID, name: owner.uid}] {
				if !seen[owned] {
					seen[owned] = true
					s.relate(owned)
					next = append(next, owned)
				}
			}
		}
		level = next
	}
}

// reselect updates the edges from selectors to one record.
func (s *state) reselect(r *record) {
	if r.resource.GroupResource() != pods {
		return
	}
	exists := s.records[r.uid] == r
	for selector := range s.selectors[r.namespace] {
		at := selector.edgeTo(r, usedBy)
		switch wanted := exists && selects(selector.selector, r.labels); {
		case wanted && at < 0:
			s.connect(selector, edge{to: r, relation: usedBy})
		case !wanted && at >= 0:
			s.disconnect(selector, at)
		}
	}
}

// relate updates the edges from a record.
func (s *state) relate(r *record) {
	if len(r.references)+len(r.selector)+len(r.out) == 0 {
		return
	}
	wanted := s.wanted(r)
	for i := len(r.out) - 1; i >= 0; i-- {
		e := r.out[i]
		if _, ok := wanted[end{e.to, e.relation}]; ok {
			delete(wanted, end{e.to, e.relation})
		} else {
			s.disconnect(r, i)
		}
	}
	for e := range wanted {
		s.connect(r, edge{to: e.to, relation: e.relation})
	}
}

// end is the target and the type of an edge.
type end struct {
	to       *record
	relation relation
}

func (s *state) wanted(r *record) map[end]struct{} {
	wanted := map[end]struct{}{}
	want := func(to *record, relation relation) {
		if to != nil && to != r {
			wanted[end{to, relation}] = struct{}{}
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

func (s *state) connect(r *record, e edge) {
	name := r.edgeName(e)
	if s.pending.unrelated.Has(name) {
		s.pending.unrelated.Delete(name)
		e.delivery = sent
	}
	r.out = append(r.out, e)
	s.edges++
	s.pending.related.Insert(r)
}

func (s *state) disconnect(r *record, at int) {
	e := r.out[at]
	r.out = slices.Delete(r.out, at, at+1)
	s.edges--
	switch {
	case e.delivery == unsent:
	case s.records[e.to.uid] == e.to:
		s.pending.unrelated.Insert(r.edgeName(e))
	default:
		s.takenAway(e.to.uid, r.edgeName(e))
	}
}
