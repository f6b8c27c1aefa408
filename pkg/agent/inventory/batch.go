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
	// updated contains the records that the hub may know, unless the batch is full.
	added, updated []item
	removes        []inventory.Deleted
	adds, drops    []inventory.Edge
	// resources and edges are the totals on the hub after the batch.
	resources, edges int

	// taken contains the pending changes that the batch reports. left contains the edges that the hub
	// does not have after it.
	taken pending
	left  []formerEdge
}

// item is a copy of a record in a batch. Later changes of the record do not affect it.
type item struct {
	resource   *resource
	uid        string
	properties []byte
	access     []byte
}

func (b *batch) put(r *record) {
	it := item{resource: r.resource, uid: r.uid, properties: r.properties}
	if b.access {
		it.access = r.access
	}
	if b.full || !r.known {
		b.added = append(b.added, it)
	} else {
		b.updated = append(b.updated, it)
	}
	r.known = true
}

// kind returns the label of the batch in metrics.
func (b *batch) kind() string {
	switch {
	case b.full:
		return "full"
	case len(b.added)+len(b.updated)+len(b.removes)+len(b.adds)+len(b.drops) == 0:
		return "heartbeat"
	default:
		return "delta"
	}
}

// encode writes the JSON of inventory.Sync as a stream, so that memory does not hold all of it.
func (b *batch) encode(to io.Writer, version string) error {
	// The writer keeps the first error until Flush.
	w := bufio.NewWriterSize(to, 32<<10)
	writeText(w, `{"version":`)
	writeValue(w, &version)
	if b.full {
		writeText(w, `,"clearAll":true`)
	}
	writeList(w, "addResources", b.added, writeItem)
	writeList(w, "updateResources", b.updated, writeItem)
	writeList(w, "deleteResources", b.removes, writeValue[inventory.Deleted])
	writeList(w, "addEdges", b.adds, writeValue[inventory.Edge])
	writeList(w, "deleteEdges", b.drops, writeValue[inventory.Edge])
	writeText(w, `}`)
	return w.Flush()
}

// writeList writes a member with a list. A list without elements is omitted.
func writeList[T any](w *bufio.Writer, name string, elements []T, write func(*bufio.Writer, *T)) {
	for i := range elements {
		if i == 0 {
			writeText(w, `,"`+name+`":[`)
		} else {
			writeText(w, `,`)
		}
		write(w, &elements[i])
	}
	if len(elements) > 0 {
		writeText(w, `]`)
	}
}

// writeItem writes the JSON of inventory.Resource.
func writeItem(w *bufio.Writer, it *item) {
	writeText(w, `{"kind":`)
	writeValue(w, &it.resource.kind)
	writeText(w, `,"uid":`)
	writeValue(w, &it.uid)
	writeText(w, `,"resourceString":`)
	writeValue(w, &it.resource.Resource)
	writeText(w, `,"properties":`)
	if len(it.access) > 0 {
		_, _ = w.Write(it.properties[:len(it.properties)-1])
		writeText(w, `,`)
		_, _ = w.Write(it.access)
		writeText(w, `}`)
	} else {
		_, _ = w.Write(it.properties)
	}
	writeText(w, `}`)
}

func writeText(w *bufio.Writer, text string) { _, _ = w.WriteString(text) }

// writeValue writes a string, or a struct of strings, which can always be encoded.
func writeValue[T any](w *bufio.Writer, value *T) {
	encoded, _ := json.Marshal(value)
	_, _ = w.Write(encoded)
}
