package inventory

import (
	"bytes"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a resource of the cluster, as discovery found it.
type resource struct {
	schema.GroupVersionResource
	kind string
	// reported is false for a resource that is watched only to learn of others.
	reported bool
}

// record is what is kept of an object.
type record struct {
	resource *resource
	// uid is "<cluster>/<uid>".
	uid, namespace, name string
	// properties is a JSON object. It is replaced, never changed.
	properties []byte
	references []reference
	// labels are those of an object that selectors can find; see selectable.
	labels string
	// selector has the terms of an object that selects others.
	selector []string
	capacity capacity
	// ignored is true for an object that is not reported.
	ignored bool

	// out are the edges from this record. This and known belong to the state.
	out []edge
	// known is true if the hub may know the record.
	known bool
}

// capacity is what a node gives to its cluster.
type capacity struct {
	// cpu is in cores, memory in bytes.
	cpu, memory int64
}

// GetObjectKind and DeepCopyObject let a record be an item of a list that a
// reflector makes of pages, in the place of the object itself.
func (r *record) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns a copy that shares what is never changed.
func (r *record) DeepCopyObject() runtime.Object {
	copied := *r
	return &copied
}

// says reports whether two records of an object say the same.
func (r *record) says(other *record) bool {
	return bytes.Equal(r.properties, other.properties) && r.refersAs(other) &&
		r.labels == other.labels && r.capacity == other.capacity && *r.resource == *other.resource
}

func (r *record) refersAs(other *record) bool {
	return slices.Equal(r.references, other.references) && slices.Equal(r.selector, other.selector)
}

// edge is an edge from a record.
type edge struct {
	to       *record
	relation relation
	delivery delivery
}

// delivery is how far an edge has come.
type delivery uint8

const (
	// unsent edges are not known to the hub, sent ones may be, and delivered ones are.
	unsent delivery = iota
	sent
	delivered
)

// edgeName is an edge whose ends may be gone.
type edgeName struct {
	from, to         string
	fromKind, toKind string
	relation         relation
}

func (r *record) edgeName(e edge) edgeName {
	return edgeName{r.uid, e.to.uid, r.resource.kind, e.to.resource.kind, e.relation}
}
