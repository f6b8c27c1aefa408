package embedded

import (
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// rowWriter changes rows and their indexes.
type rowWriter struct {
	state     *state
	rowMemory *rowMemory
	id        uint64
	free      *freeList
	dict      *dictionaryWriter
	index     *indexer
	class     *classWriter
	journal   *journal

	// unreferenced contains rows that may no longer have a resource or edges.
	unreferenced []uint32
}

// rowMemory contains buffers that rowWriters reuse for each row.
type rowMemory struct {
	data   []byte
	key    []byte
	before parts
	now    parts
}

// journal records the changes of a transaction.
type journal struct {
	// recording is false during loading, because loaded data are not changes.
	recording bool
	changes   []change
	stored    storedChanges
}

func (j *journal) record(c change) {
	if j.recording {
		j.changes = append(j.changes, c)
	}
}

// Results of put.
const (
	unchanged = iota
	added
	updated
)

// put stores a resource, and returns its row.
func (w *rowWriter) put(c *cluster, resource *search.Resource) (number uint32, outcome int) {
	properties := withInternal(resource.Properties, resource.Internal)
	w.rowMemory.key, _ = appendUID(w.rowMemory.key[:0], c.name, resource.UID)
	w.rowMemory.data = w.dict.encode(append(w.rowMemory.data[:0], w.rowMemory.key...), properties)

	number, known := w.state.findRow(c.id, w.rowMemory.key)
	if known && w.state.rows.at(number).exists() {
		old := *w.state.rows.at(number)
		if old.data == string(w.rowMemory.data) && w.state.classes.at(old.class).class.Hub == c.hub {
			return number, unchanged
		}
		w.replace(number, old, string(w.rowMemory.data), c, properties)
		return number, updated
	}
	if !known {
		number = w.newRow(c, w.rowMemory.key)
	}
	w.fill(number, string(w.rowMemory.data), c, search.ClassOf(c.name, c.hub, properties))
	if w.index.indexerMemory.termRows.full() {
		w.index.flush()
	}
	w.journal.record(change{version: w.state.version, cluster: c.id, hub: c.hub, after: w.state.rows.at(number).data})
	return number, added
}

// fill stores a resource in a row that is new or to which only edges referred.
func (w *rowWriter) fill(number uint32, data string, c *cluster, in visibility.Class) {
	found := &w.rowMemory.now
	w.state.partsOf(data, found)
	c.unknown.remove(w.id, number)
	*w.state.rows.edit(w.id, number) = row{data: data, version: w.state.version, class: w.class.enter(c, in, number), kind: found.kind}
	w.index.add(number, found)
	c.rows.add(w.id, number)
	w.state.visible++
	w.state.changes++
	w.state.moved = append(w.state.moved, number)
	w.journal.stored.row(c.id, number)
}

// replace changes a resource to the state with the given data.
func (w *rowWriter) replace(number uint32, old row, data string, c *cluster, properties query.Properties) {
	w.index.flush()
	now, before := &w.rowMemory.now, &w.rowMemory.before
	w.state.partsOf(old.data, before)
	w.state.partsOf(data, now)
	moved := now.named != before.named
	class := old.class
	if in := search.ClassOf(c.name, c.hub, properties); w.state.classes.at(old.class).class != in {
		moved = true
		w.class.leave(old.class, number)
		class = w.class.enter(c, in, number)
	}
	*w.state.rows.edit(w.id, number) = row{data: data, version: w.state.version, class: class, kind: now.kind}
	w.index.replace(number, before, now)
	if moved {
		w.state.moved = append(w.state.moved, number)
	}
	w.state.changes++
	w.journal.stored.row(c.id, number)
	w.journal.record(change{version: w.state.version, cluster: c.id, hub: c.hub, before: old.data, after: data})
}

// remove removes a resource, which must no longer have edges. The row stays until the report
// ends, so that a UID has only one row in that time.
func (w *rowWriter) remove(number uint32, c *cluster) {
	w.index.flush()
	old := *w.state.rows.at(number)
	w.state.partsOf(old.data, &w.rowMemory.before)
	w.index.remove(number, &w.rowMemory.before)
	w.class.leave(old.class, number)
	c.rows.remove(w.id, number)
	c.secrets.remove(w.id, number)
	w.state.visible--
	w.state.changes++
	w.state.moved = append(w.state.moved, number)
	uid := old.data[:uidEnd(old.data)]
	w.journal.stored.gone(c.id, uid)
	w.journal.record(change{version: w.state.version, cluster: c.id, hub: c.hub, before: old.data})
	*w.state.rows.edit(w.id, number) = row{data: uid, class: c.pending}
	c.unknown.add(w.id, number)
	w.unreferenced = append(w.unreferenced, number)
}

// reclassify updates the classes of a cluster that has become the hub or is no longer the hub.
func (w *rowWriter) reclassify(c *cluster) {
	c.rows.each(func(number uint32) bool {
		r := *w.state.rows.at(number)
		in := search.ClassOf(c.name, c.hub, w.state.decoded(r.data))
		w.class.leave(r.class, number)
		w.state.rows.edit(w.id, number).class = w.class.enter(c, in, number)
		w.state.moved = append(w.state.moved, number)
		return true
	})
}

// newRow creates a row that is not a resource yet.
func (w *rowWriter) newRow(c *cluster, uid []byte) uint32 {
	number := w.free.take(rowNumbers, w.state.rows.len())
	*w.state.rows.edit(w.id, number) = row{data: string(uid), class: c.pending}
	w.state.uids.insert(w.id, hashUID(c.id, uid), number)
	c.unknown.add(w.id, number)
	return number
}

// rowOf returns the row of an encoded UID. It creates the row if it is new.
func (w *rowWriter) rowOf(c *cluster, uid []byte) uint32 {
	if number, known := w.state.findRow(c.id, uid); known {
		return number
	}
	return w.newRow(c, uid)
}

// freeUnreferenced frees the rows of a cluster that have neither a resource nor edges.
func (w *rowWriter) freeUnreferenced(c *cluster) {
	for _, number := range w.unreferenced {
		r := w.state.rows.at(number)
		if r.exists() || r.data == "" || len(w.state.adjacency.get(number)) > 0 {
			continue
		}
		w.journal.stored.noEdges(c.id, r.data)
		w.state.uids.remove(w.id, w.state.hashRow(number), number)
		*w.state.rows.edit(w.id, number) = row{class: c.pending}
		c.unknown.remove(w.id, number)
		w.free.add(rowNumbers, number)
	}
	w.unreferenced = w.unreferenced[:0]
}
