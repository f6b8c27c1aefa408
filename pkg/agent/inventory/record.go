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

	// edges are the edges from this record that the hub has or may have. Only the state uses them and known.
	edges []edge
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

// end is the target and the type of an edge.
type end struct {
	// to is the UID of the target.
	to       string
	relation relation
}

// edge is an edge from a record.
type edge struct {
	end
	// delivered is true if the hub has the edge, and false if it may have it.
	delivered bool
}

// formerEdge is an edge that a record does not have any longer.
type formerEdge struct {
	// from is the UID of the record.
	from string
	end
}
