package inventory

import (
	"bytes"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a discovered resource of the cluster.
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

	// out contains the edges from this record. The state sets out and known.
	out []edge
	// known is true if the hub may have the record.
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

// says reports whether two records have the same content.
func (r *record) says(other *record) bool {
	return bytes.Equal(r.properties, other.properties) && bytes.Equal(r.access, other.access) && r.refersAs(other) &&
		r.labels == other.labels && *r.resource == *other.resource
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

// delivery is the delivery state of an edge.
type delivery uint8

const (
	// The hub does not have unsent edges, may have sent edges, and has delivered edges.
	unsent delivery = iota
	sent
	delivered
)

// edgeName identifies an edge even if its ends are deleted.
type edgeName struct {
	from, to         string
	fromKind, toKind string
	relation         relation
}

func (r *record) edgeName(e edge) edgeName {
	return edgeName{r.uid, e.to.uid, r.resource.kind, e.to.resource.kind, e.relation}
}
