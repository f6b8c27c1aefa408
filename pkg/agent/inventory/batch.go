package inventory

import (
	"bufio"
	"encoding/json"
	"io"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

// batch is a snapshot of a report, taken when begin returns it.
type batch struct {
	full bool
	// greeting is true for a report that checks whether the hub accepts reports.
	greeting bool
	// access is true if the batch contains the content of RBAC objects. urgent is true if it contains changes of them.
	access, urgent bool
	puts           []item
	removes        []string
	// adds and drops are edges.
	adds, drops []edgeName
	// resources and edges are the totals on the hub after the batch.
	resources, edges int

	// taken contains the pending changes that the batch reports.
	taken pending
}

// item is a copy of a record in a batch. Later changes of the record do not affect it.
type item struct {
	resource   *resource
	uid        string
	properties []byte
	access     []byte
	// known is true if the hub may know the record.
	known bool
}

func (b *batch) put(r *record) {
	it := item{resource: r.resource, uid: r.uid, properties: r.properties, known: r.known}
	if b.access {
		it.access = r.access
	}
	b.puts = append(b.puts, it)
	r.known = true
}

func (b *batch) add(r *record, e *edge) {
	b.adds = append(b.adds, r.edgeName(*e))
	if e.delivery == unsent {
		e.delivery = sent
	}
}

// kind returns the label of the batch in metrics.
func (b *batch) kind() string {
	switch {
	case b.full:
		return "full"
	case b.empty():
		return "heartbeat"
	default:
		return "delta"
	}
}

func (b *batch) empty() bool { return len(b.puts)+len(b.removes)+len(b.adds)+len(b.drops) == 0 }

// exceeds reports whether the encoded batch is larger than approximately the given number of bytes.
func (b *batch) exceeds(bytes int) bool {
	// A UID with its JSON syntax takes about 100 bytes.
	const each = 100
	size := each * (len(b.removes) + 2*len(b.adds) + 2*len(b.drops))
	for i := range b.puts {
		if size > bytes {
			return true
		}
		size += each + len(b.puts[i].properties) + len(b.puts[i].access)
	}
	return size > bytes
}

// encode writes the JSON of inventory.Sync as a stream, so that memory does not hold all of it.
func (b *batch) encode(to io.Writer, version string) error {
	w := &writer{Writer: bufio.NewWriterSize(to, 32<<10)}
	w.text(`{`)
	if b.full {
		w.text(`"clearAll":true,`)
	}
	w.text(`"version":`)
	w.value(version)
	for _, part := range []struct {
		name  string
		known bool
	}{{"addResources", false}, {"updateResources", true}} {
		w.begin(part.name)
		for i := range b.puts {
			if it := &b.puts[i]; !b.full && it.known == part.known || b.full && !part.known {
				w.next()
				w.text(`{"kind":`)
				w.value(it.resource.kind)
				w.text(`,"uid":`)
				w.value(it.uid)
				w.text(`,"resourceString":`)
				w.value(it.resource.Resource)
				w.text(`,"properties":`)
				if len(it.access) > 0 {
					w.bytes(it.properties[:len(it.properties)-1])
					w.text(`,`)
					w.bytes(it.access)
					w.text(`}`)
				} else {
					w.bytes(it.properties)
				}
				w.text(`}`)
			}
		}
		w.end()
	}
	w.begin("deleteResources")
	for _, uid := range b.removes {
		w.next()
		w.value(inventory.Deleted{UID: uid})
	}
	w.end()
	for _, part := range []struct {
		name  string
		edges []edgeName
	}{{"addEdges", b.adds}, {"deleteEdges", b.drops}} {
		w.begin(part.name)
		for _, e := range part.edges {
			w.next()
			w.value(inventory.Edge{
				SourceUID: e.from, DestUID: e.to, SourceKind: e.fromKind, DestKind: e.toKind, EdgeType: relationNames[e.relation],
			})
		}
		w.end()
	}
	w.text(`}`)
	if w.err != nil {
		return w.err
	}
	return w.Flush()
}

// writer writes JSON and keeps the first error.
type writer struct {
	*bufio.Writer
	err error
	// list is the name of the current list. some is true if the list has elements.
	list string
	some bool
}

func (w *writer) bytes(data []byte) {
	if w.err == nil {
		_, w.err = w.Write(data)
	}
}

func (w *writer) text(text string) {
	if w.err == nil {
		_, w.err = w.WriteString(text)
	}
}

func (w *writer) value(value any) {
	if w.err != nil {
		return
	}
	data, err := json.Marshal(value)
	if err != nil {
		w.err = err
		return
	}
	w.bytes(data)
}

func (w *writer) begin(list string) { w.list, w.some = list, false }

// next starts an element. A list without elements is omitted.
func (w *writer) next() {
	if w.some {
		w.text(`,`)
		return
	}
	w.some = true
	w.text(`,"` + w.list + `":[`)
}

func (w *writer) end() {
	if w.some {
		w.text(`]`)
	}
}
