package embedded

import (
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// edgeKey is what makes an edge another one.
type edgeKey struct{ source, dest, relation uint32 }

// edgeCounts tell what a report changes about edges. An edge that goes and comes
// again in one report has not changed.
type edgeCounts struct {
	added   map[edgeKey]struct{}
	removed map[edgeKey]struct{}
	// fresh counts what was added while nothing had been removed, which needs no names.
	fresh int
}

func (e *edgeCounts) add(key edgeKey) {
	if e.removed == nil {
		e.fresh++
		return
	}
	if _, was := e.removed[key]; was {
		delete(e.removed, key)
		return
	}
	e.added[key] = struct{}{}
}

func (e *edgeCounts) remove(key edgeKey) {
	if e.removed == nil {
		e.removed, e.added = map[edgeKey]struct{}{}, map[edgeKey]struct{}{}
	}
	if _, is := e.added[key]; is {
		delete(e.added, key)
		return
	}
	e.removed[key] = struct{}{}
}

// relation gives the number of a type of edges.
func (t *transaction) relation(name string) uint32 {
	if id, known := t.relationNames[name]; known {
		return id
	}
	if !t.ownRelations {
		t.relationNames, t.ownRelations = cloneMap(t.relationNames), true
		t.relations = slices.Clip(t.relations)
	}
	id := uint32(len(t.relations))
	name = strings.Clone(name)
	t.relations = append(t.relations, name)
	t.relationNames[name] = id
	return id
}

// edgeRow is the row at an end of an edge; one that is only known by the edge is made.
func (t *transaction) edgeRow(c *cluster, uid string) uint32 {
	encoded, _ := appendUID(t.scratch.uid[:0], c.name, uid)
	t.scratch.uid = encoded
	if number, known := t.findRow(c.id, encoded); known {
		return number
	}
	return t.newRow(c, encoded)
}

// addEdge adds an edge unless it is there.
func (t *transaction) addEdge(c *cluster, edge *search.Edge, counts *edgeCounts) {
	relation := t.relation(edge.Type)
	source := t.edgeRow(c, edge.SourceUID)
	dest := t.edgeRow(c, edge.DestUID)
	t.connect(c, source, dest, relation, counts)
}

// connect adds an edge between two rows unless it is there.
func (t *transaction) connect(c *cluster, source, dest, relation uint32, counts *edgeCounts) {
	out, in := newEnd(dest, relation, false), newEnd(source, relation, true)
	shorter, wanted := t.adjacency.get(source), out
	if other := t.adjacency.get(dest); len(other) < len(shorter) {
		shorter, wanted = other, in
	}
	if slices.Contains(shorter, wanted) {
		return
	}
	t.appendEnd(source, out)
	t.appendEnd(dest, in)
	c.edges++
	counts.add(edgeKey{source, dest, relation})
	t.stored.edges(c.id, source)
}

// deleteEdge deletes an edge if it is there.
func (t *transaction) deleteEdge(c *cluster, edge *search.Edge, counts *edgeCounts) {
	relation, known := t.relationNames[edge.Type]
	if !known {
		return
	}
	var ends [2]uint32
	for i, uid := range [...]string{edge.SourceUID, edge.DestUID} {
		encoded, _ := appendUID(t.scratch.uid[:0], c.name, uid)
		t.scratch.uid = encoded
		if ends[i], known = t.findRow(c.id, encoded); !known {
			return
		}
	}
	t.dropEdge(c, edgeKey{ends[0], ends[1], relation}, counts)
}

// dropEdge deletes an edge if it is there.
func (t *transaction) dropEdge(c *cluster, key edgeKey, counts *edgeCounts) {
	if !t.removeEnd(key.source, newEnd(key.dest, key.relation, false)) {
		return
	}
	t.removeEnd(key.dest, newEnd(key.source, key.relation, true))
	c.edges--
	counts.remove(key)
	t.stored.edges(c.id, key.source)
	t.loose = append(t.loose, key.source, key.dest)
}

// removeEdges deletes all edges at a row, which exists.
func (t *transaction) removeEdges(number uint32, c *cluster, counts *edgeCounts) {
	for _, e := range slices.Clone(t.adjacency.get(number)) {
		key := edgeKey{number, e.other(), e.relation()}
		if e.in() {
			key.source, key.dest = key.dest, key.source
		}
		t.dropEdge(c, key, counts)
	}
}

// appendEnd adds an edge at a row. What older states see of the memory does not change.
func (t *transaction) appendEnd(number uint32, e end) {
	ends := t.adjacency.edit(t.id, number)
	*ends = append(*ends, e)
}

func (t *transaction) removeEnd(number uint32, e end) bool {
	ends := t.adjacency.get(number)
	at := slices.Index(ends, e)
	if at < 0 {
		return false
	}
	var rest []end
	if len(ends) > 1 {
		rest = append(append(make([]end, 0, len(ends)-1), ends[:at]...), ends[at+1:]...)
	}
	*t.adjacency.edit(t.id, number) = rest
	return true
}

// keepEdges deletes the edges of a cluster that are not among those given.
func (t *transaction) keepEdges(c *cluster, kept []search.Edge, counts *edgeCounts) {
	if c.edges == 0 {
		return
	}
	keys := make(map[edgeKey]struct{}, len(kept))
	for i := range kept {
		relation := t.relation(kept[i].Type)
		keys[edgeKey{t.edgeRow(c, kept[i].SourceUID), t.edgeRow(c, kept[i].DestUID), relation}] = struct{}{}
	}
	var gone []edgeKey
	look := func(number uint32) bool {
		for _, e := range t.adjacency.get(number) {
			key := edgeKey{number, e.other(), e.relation()}
			if _, stays := keys[key]; !e.in() && !stays {
				gone = append(gone, key)
			}
		}
		return true
	}
	c.rows.each(look)
	c.unknown.each(look)
	for _, key := range gone {
		t.dropEdge(c, key, counts)
	}
}
