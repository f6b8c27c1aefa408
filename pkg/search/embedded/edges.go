package embedded

import (
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// graphWriter changes edges.
type graphWriter struct {
	graph       *graph
	graphMemory *graphMemory
	id          uint64
	free        *freeList
	rows        *rowWriter
	// unused are relations that may have no edge.
	unused []uint32
	// searched contains the rows with many edges whose edges were searched.
	searched map[uint32]*endIndex
}

// graphMemory is the memory that graphWriters keep between transactions.
type graphMemory struct {
	// relationEdges is the number of edges of each relation. numbers are the numbers of relations by name.
	relationEdges []int
	numbers       map[string]uint32
}

// countRelations returns the number of edges of each relation.
func (g *graph) countRelations() []int {
	counts := make([]int, g.relations.len())
	g.adjacency.each(func(_ uint32, rows *[leafSize][]end) {
		for _, ends := range rows {
			for _, e := range ends {
				if !e.in() {
					counts[e.relation()]++
				}
			}
		}
	})
	return counts
}

// endIndex finds the edges at a row with many edges, so that a report that changes many of them does
// not read all others each time.
type endIndex struct {
	searches int
	// positions are the positions of the edges. They are nil for the first searches. Otherwise, the
	// transaction is allowed to change the list of edges in place.
	positions map[end]int
}

const (
	// manyEnds is the number of edges at which a row may get an index. manySearches is the
	// number of searches without an index.
	manyEnds     = 512
	manySearches = 16
)

// edgeKey identifies an edge.
type edgeKey struct{ source, dest, relation uint32 }

// edgeCounts are the changes of edges by a report. An edge that one report removes and adds again
// has not changed. It is nil while data are loaded.
type edgeCounts struct {
	added, removed map[edgeKey]struct{}
}

func newEdgeCounts() *edgeCounts {
	return &edgeCounts{added: map[edgeKey]struct{}{}, removed: map[edgeKey]struct{}{}}
}

func (e *edgeCounts) add(key edgeKey) {
	if e == nil {
		return
	}
	if _, removed := e.removed[key]; removed {
		delete(e.removed, key)
		return
	}
	e.added[key] = struct{}{}
}

func (e *edgeCounts) remove(key edgeKey) {
	if e == nil {
		return
	}
	if _, added := e.added[key]; added {
		delete(e.added, key)
		return
	}
	e.removed[key] = struct{}{}
}

// relation returns the number of a type of edges. It creates the relation if it is new.
func (w *graphWriter) relation(name string) uint32 {
	if id, known := w.graphMemory.numbers[name]; known {
		return id
	}
	id := w.free.take(relationNumbers, w.graph.relations.len())
	name = strings.Clone(name)
	*w.graph.relations.edit(w.id, id) = name
	w.graphMemory.numbers[name] = id
	if missing := int(id) + 1 - len(w.graphMemory.relationEdges); missing > 0 {
		w.graphMemory.relationEdges = append(w.graphMemory.relationEdges, make([]int, missing)...)
	}
	w.unused = append(w.unused, id)
	return id
}

// removeUnused removes relations without edges, so that reported types do not stay in memory.
func (w *graphWriter) removeUnused() {
	slices.Sort(w.unused)
	for _, id := range slices.Compact(w.unused) {
		if w.graphMemory.relationEdges[id] == 0 {
			delete(w.graphMemory.numbers, w.graph.relations.get(id))
			*w.graph.relations.edit(w.id, id) = ""
			w.free.add(relationNumbers, id)
		}
	}
	w.unused = w.unused[:0]
}

// edgeRow returns the row at an end of an edge. It creates the row if it is new.
func (w *graphWriter) edgeRow(c *cluster, uid string) uint32 {
	w.rows.rowMemory.key, _ = appendUID(w.rows.rowMemory.key[:0], c.name, uid)
	return w.rows.rowOf(c, w.rows.rowMemory.key)
}

// key returns the key of a reported edge. It creates rows for new ends.
func (w *graphWriter) key(c *cluster, edge *search.Edge) edgeKey {
	return edgeKey{source: w.edgeRow(c, edge.SourceUID), dest: w.edgeRow(c, edge.DestUID), relation: w.relation(edge.Type)}
}

// add adds an edge unless it exists.
func (w *graphWriter) add(c *cluster, key edgeKey, counts *edgeCounts) {
	out, in := newEnd(key.dest, key.relation, false), newEnd(key.source, key.relation, true)
	shorter, wanted := key.source, out
	if len(w.graph.adjacency.get(key.dest)) < len(w.graph.adjacency.get(key.source)) {
		shorter, wanted = key.dest, in
	}
	if w.find(shorter, wanted) >= 0 {
		return
	}
	w.appendEnd(key.source, out)
	w.appendEnd(key.dest, in)
	c.edges++
	w.graphMemory.relationEdges[key.relation]++
	counts.add(key)
	w.rows.journal.stored.edges(c.id, key.source)
}

// remove removes a reported edge if it exists.
func (w *graphWriter) remove(c *cluster, edge *search.Edge, counts *edgeCounts) {
	relation, known := w.graphMemory.numbers[edge.Type]
	if !known {
		return
	}
	var ends [2]uint32
	for i, uid := range [...]string{edge.SourceUID, edge.DestUID} {
		w.rows.rowMemory.key, _ = appendUID(w.rows.rowMemory.key[:0], c.name, uid)
		if ends[i], known = w.rows.state.findRow(c.id, w.rows.rowMemory.key); !known {
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
	if w.graphMemory.relationEdges[key.relation]--; w.graphMemory.relationEdges[key.relation] == 0 {
		w.unused = append(w.unused, key.relation)
	}
	counts.remove(key)
	w.rows.journal.stored.edges(c.id, key.source)
	w.rows.unreferenced = append(w.rows.unreferenced, key.source, key.dest)
}

// removeRow removes all edges at a row.
func (w *graphWriter) removeRow(c *cluster, number uint32, counts *edgeCounts) {
	w.removeFrom(c, number, counts)
	for _, e := range slices.Clone(w.graph.adjacency.get(number)) {
		w.removeKey(c, edgeKey{e.other(), number, e.relation()}, counts)
	}
}

// removeFrom removes all edges from a row.
func (w *graphWriter) removeFrom(c *cluster, number uint32, counts *edgeCounts) {
	for _, e := range slices.Clone(w.graph.adjacency.get(number)) {
		if !e.in() {
			w.removeKey(c, edgeKey{number, e.other(), e.relation()}, counts)
		}
	}
}

// find returns the position of an edge in the list of a row, or -1.
func (w *graphWriter) find(number uint32, e end) int {
	ends := w.graph.adjacency.get(number)
	index := w.searched[number]
	if index == nil {
		if len(ends) < manyEnds {
			return slices.Index(ends, e)
		}
		if w.searched == nil {
			w.searched = map[uint32]*endIndex{}
		}
		index = &endIndex{}
		w.searched[number] = index
	}
	if index.positions == nil {
		if index.searches++; index.searches <= manySearches {
			return slices.Index(ends, e)
		}
		index.positions = make(map[end]int, len(ends))
		for i, e := range ends {
			index.positions[e] = i
		}
		*w.graph.adjacency.edit(w.id, number) = slices.Clone(ends)
	}
	if at, found := index.positions[e]; found {
		return at
	}
	return -1
}

// positions returns the index of a row, or nil.
func (w *graphWriter) positions(number uint32) map[end]int {
	if index := w.searched[number]; index != nil {
		return index.positions
	}
	return nil
}

// dropIndexes removes all indexes, and the spare memory of their rows.
func (w *graphWriter) dropIndexes() {
	for number, index := range w.searched {
		if ends := w.graph.adjacency.get(number); index.positions != nil {
			*w.graph.adjacency.edit(w.id, number) = slices.Clone(ends)
		}
	}
	w.searched = nil
}

// appendEnd adds an edge at a row. It does not change the part of the memory that older states
// read.
func (w *graphWriter) appendEnd(number uint32, e end) {
	ends := w.graph.adjacency.edit(w.id, number)
	if positions := w.positions(number); positions != nil {
		positions[e] = len(*ends)
	}
	*ends = append(*ends, e)
}

func (w *graphWriter) removeEnd(number uint32, e end) bool {
	at := w.find(number, e)
	if at < 0 {
		return false
	}
	ends := w.graph.adjacency.edit(w.id, number)
	last := len(*ends) - 1
	switch positions := w.positions(number); {
	case positions != nil:
		moved := (*ends)[last]
		(*ends)[at], positions[moved] = moved, at
		delete(positions, e)
		*ends = (*ends)[:last]
	case last == 0:
		*ends = nil
	default:
		*ends = slices.Concat((*ends)[:at], (*ends)[at+1:])
	}
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
		for _, e := range w.graph.adjacency.get(number) {
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
func (w *graphWriter) load(c *cluster, e entry) bool {
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
		w.add(c, edgeKey{source: w.rows.rowOf(c, e.key), dest: w.rows.rowOf(c, dest), relation: w.relation(relation)}, nil)
	}
	return true
}
