package embedded

import (
	"maps"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// graphWriter changes edges.
type graphWriter struct {
	*graph
	id   uint64
	rows *rowWriter
	// ownRelations is true if the names of relations already belong to the transaction.
	ownRelations bool
}

// edgeKey identifies an edge.
type edgeKey struct{ source, dest, relation uint32 }

// edgeCounts are the changes of edges by a report. An edge that one report removes and adds again
// has not changed.
type edgeCounts struct {
	added   map[edgeKey]struct{}
	removed map[edgeKey]struct{}
	// fresh counts edges that were added before any edge was removed. They require no keys.
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

// relation returns the number of a type of edges.
func (w *graphWriter) relation(name string) uint32 {
	if id, known := w.relationNames[name]; known {
		return id
	}
	if !w.ownRelations {
		w.relationNames, w.ownRelations = maps.Clone(w.relationNames), true
		w.relations = slices.Clip(w.relations)
	}
	id := uint32(len(w.relations))
	name = strings.Clone(name)
	w.relations = append(w.relations, name)
	w.relationNames[name] = id
	return id
}

// edgeRow returns the row at an end of an edge. It creates the row if it is new.
func (w *graphWriter) edgeRow(c *cluster, uid string) uint32 {
	w.rows.key, _ = appendUID(w.rows.key[:0], c.name, uid)
	return w.rows.rowOf(c, w.rows.key)
}

// key returns the key of a reported edge. It creates rows for new ends.
func (w *graphWriter) key(c *cluster, edge *search.Edge) edgeKey {
	return edgeKey{source: w.edgeRow(c, edge.SourceUID), dest: w.edgeRow(c, edge.DestUID), relation: w.relation(edge.Type)}
}

// add adds an edge unless it exists.
func (w *graphWriter) add(c *cluster, key edgeKey, counts *edgeCounts) {
	out, in := newEnd(key.dest, key.relation, false), newEnd(key.source, key.relation, true)
	shorter, wanted := w.adjacency.get(key.source), out
	if other := w.adjacency.get(key.dest); len(other) < len(shorter) {
		shorter, wanted = other, in
	}
	if slices.Contains(shorter, wanted) {
		return
	}
	w.appendEnd(key.source, out)
	w.appendEnd(key.dest, in)
	c.edges++
	counts.add(key)
	w.rows.journal.stored.edges(c.id, key.source)
}

// remove removes a reported edge if it exists.
func (w *graphWriter) remove(c *cluster, edge *search.Edge, counts *edgeCounts) {
	relation, known := w.relationNames[edge.Type]
	if !known {
		return
	}
	var ends [2]uint32
	for i, uid := range [...]string{edge.SourceUID, edge.DestUID} {
		w.rows.key, _ = appendUID(w.rows.key[:0], c.name, uid)
		if ends[i], known = w.rows.findRow(c.id, w.rows.key); !known {
			return
		}
	}
	w.removeKey(c, edgeKey{ends[0], ends[1], relation}, counts)
}

// removeKey removes an edge if it exists.
func (w *graphWriter) removeKey(c *cluster, key edgeKey, counts *edgeCounts) {
	if !w.removeEnd(key.source, newEnd(key.dest, key.relation, false)) {
		return
	}
	w.removeEnd(key.dest, newEnd(key.source, key.relation, true))
	c.edges--
	counts.remove(key)
	w.rows.journal.stored.edges(c.id, key.source)
	w.rows.unreferenced = append(w.rows.unreferenced, key.source, key.dest)
}

// removeRow removes all edges at a row.
func (w *graphWriter) removeRow(c *cluster, number uint32, counts *edgeCounts) {
	w.removeFrom(c, number, counts)
	for _, e := range slices.Clone(w.adjacency.get(number)) {
		w.removeKey(c, edgeKey{e.other(), number, e.relation()}, counts)
	}
}

// removeFrom removes all edges from a row.
func (w *graphWriter) removeFrom(c *cluster, number uint32, counts *edgeCounts) {
	for _, e := range slices.Clone(w.adjacency.get(number)) {
		if !e.in() {
			w.removeKey(c, edgeKey{number, e.other(), e.relation()}, counts)
		}
	}
}

// appendEnd adds an edge at a row. It does not change the part of the memory that older states
// read.
func (w *graphWriter) appendEnd(number uint32, e end) {
	ends := w.adjacency.edit(w.id, number)
	*ends = append(*ends, e)
}

func (w *graphWriter) removeEnd(number uint32, e end) bool {
	ends := w.adjacency.get(number)
	at := slices.Index(ends, e)
	if at < 0 {
		return false
	}
	var rest []end
	if len(ends) > 1 {
		rest = slices.Concat(ends[:at], ends[at+1:])
	}
	*w.adjacency.edit(w.id, number) = rest
	return true
}

// keepOnly removes the edges of a cluster that are not in the given list.
func (w *graphWriter) keepOnly(c *cluster, kept []search.Edge, counts *edgeCounts) {
	if c.edges == 0 {
		return
	}
	keys := make(map[edgeKey]struct{}, len(kept))
	for i := range kept {
		keys[w.key(c, &kept[i])] = struct{}{}
	}
	var gone []edgeKey
	look := func(number uint32) bool {
		for _, e := range w.adjacency.get(number) {
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
		w.removeKey(c, key, counts)
	}
}

// load adds the edges of a source. It returns false if the entry is not valid.
func (w *graphWriter) load(c *cluster, e entry, counts *edgeCounts) bool {
	if !isUID(e.key) {
		return false
	}
	d := decoder{rest: e.value}
	for len(d.rest) > 0 {
		relation := d.text()
		length := uidLength(d.rest)
		if d.failed || length < 0 {
			return false
		}
		dest := d.take(uint64(length))
		w.add(c, edgeKey{source: w.rows.rowOf(c, e.key), dest: w.rows.rowOf(c, dest), relation: w.relation(relation)}, counts)
	}
	return true
}
