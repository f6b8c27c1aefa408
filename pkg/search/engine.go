// Package search finds resources of a fleet. An Engine keeps what clusters report
// and answers what callers ask, each within the caller's Scope.
package search

import (
	"context"
	"errors"
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

var (
	// ErrExpired is the error for a continue token or a version that the engine
	// does not know any more. Callers begin again.
	ErrExpired = errors.New("the position is too old")
	// ErrInUse is the error for data that another process has open.
	ErrInUse = errors.New("the data is in use by another process")
	// ErrReadOnly is the error of an engine that does not take reports.
	ErrReadOnly = errors.New("the engine is read-only")
	// ErrUnavailable is the error while what the engine needs, such as its database, is away.
	// Callers try again later. What it wraps may name hosts, and is for the log alone.
	ErrUnavailable = errors.New("the engine is not available")
)

// Engine keeps resources and finds them. All methods may be called at the same
// time. Whoever reads passes a Scope, and what is outside of it does not exist for
// the answer: not in items, counts, related resources, values or properties.
type Engine interface {
	// Apply stores a report. When it returns, the report is durable against a crash
	// of the process, and visible to every read that begins. A report is seen whole or
	// not at all.
	Apply(ctx context.Context, report *Report) (*Applied, error)
	// RemoveCluster forgets a cluster with all its resources.
	RemoveCluster(ctx context.Context, cluster string) error
	// Clusters are the clusters that have reported, by name. No Scope applies: the
	// caller decides who may see them.
	Clusters(ctx context.Context) ([]ClusterState, error)

	// Search answers a request.
	Search(ctx context.Context, scope visibility.Scope, request *Request) (*Result, error)
	// Complete gives the values of a property under a query.
	Complete(ctx context.Context, scope visibility.Scope, request *CompletionRequest) (*Completion, error)
	// Schema gives the properties of what matches a query, by name, hidden ones excluded.
	Schema(ctx context.Context, scope visibility.Scope, q *query.Query, now time.Time) ([]PropertySchema, error)
	// Get returns one resource; nil if there is none in the scope.
	Get(ctx context.Context, scope visibility.Scope, uid string) (*Item, error)

	// Version is that of the last report that reads see. It never decreases as long
	// as the data is kept, over restarts too.
	Version(ctx context.Context) (uint64, error)
	// Changes returns what has changed after a version, in order, at most max
	// changes but all those of one version, and the version up to which these are all. Without
	// changes it waits for some until ctx ends, and then returns the version it knows and
	// no error. It returns ErrExpired for a version that is too old or unknown.
	// No Scope applies: a watcher matches each change itself.
	Changes(ctx context.Context, after uint64, max int) ([]Change, uint64, error)
	// HubClasses are the classes of the hub's resources that are stored, and a number
	// that changes whenever they do.
	HubClasses(ctx context.Context) ([]visibility.Class, uint64, error)

	// Close stops what the engine has started and makes the data durable.
	Close() error
}

// Resource is one resource of a cluster, as reported.
type Resource struct {
	// UID is "<cluster>/<uid>", or "cluster__<cluster>" for what stands for the cluster itself.
	UID        string
	Properties query.Properties
}

// Edge relates two resources of one cluster.
type Edge struct {
	SourceUID, DestUID   string
	SourceKind, DestKind string
	// Type is the relation, such as ownedBy or runsOn.
	Type string
}

// Report is what one cluster reports at a time.
type Report struct {
	Cluster string
	// Hub is true if the cluster is the hub itself. It follows from who reports, never
	// from what is reported.
	Hub bool
	// Full is true for a report of everything: what it does not contain is gone.
	Full bool
	// Time of the report.
	Time time.Time
	// Put are the resources that are new or changed, Delete the UIDs of those that are
	// gone, with their edges. A UID that does not exist is not an error.
	Put    []Resource
	Delete []string
	// AddEdges and DeleteEdges change relations. An edge may come before its resources; it is
	// counted, and found once both exist. Deleting a resource deletes its edges.
	AddEdges, DeleteEdges []Edge
}

// Applied tells what a report has changed, and what the cluster has now.
type Applied struct {
	Added, Updated, Deleted  int
	EdgesAdded, EdgesDeleted int
	Resources, Edges         int
	Version                  uint64
}

// ClusterState is what is known of a reporting cluster.
type ClusterState struct {
	Name             string
	Hub              bool
	Resources, Edges int
	// Secrets are those of the Resources that are Secrets of a managed cluster. They are 0 for the hub.
	Secrets int
	// Reported is the time of the last report.
	Reported time.Time
	// Incomplete is true if data may have been lost since, so that a full report is needed.
	Incomplete bool
}

// Order is a property to order by.
type Order struct {
	Property   string
	Descending bool
}

// Request is a search. Count is always answered.
type Request struct {
	Query query.Query
	// Now is the time that ages count from.
	Now time.Time
	// Items tells whether items are wanted, at most Limit of them (all if negative),
	// after the first Offset or after Continue.
	Items    bool
	Limit    int
	Offset   int
	Continue string
	// OrderBy is empty for any order that is stable as long as nothing changes. Numbers
	// order before times and texts, numbers as numbers, texts by bytes; resources without the
	// property come last; ties are ordered by UID. A map or a list orders by its first leaf.
	OrderBy []Order
	// Related asks for the resources that are related to any match, whatever Limit is;
	// RelatedKinds restricts their kinds (without case), and RelatedItems asks for up to RelatedLimit of each kind
	// (all if negative). Related are those an edge away in either direction, and beyond an edge from there
	// up to RelatedDepth edges (0 means 1); the path does not go on from Nodes and Channels. What matches itself
	// is not related. Every resource on a path must be in the scope.
	Related      bool
	RelatedKinds []string
	RelatedItems bool
	RelatedLimit int
	RelatedDepth int
}

// Result answers a Request.
type Result struct {
	// Count of all matches, exact.
	Count int
	Items []Item
	// Continue is where the next items begin; empty after the last.
	Continue string
	// Related are by kind, in the order of kinds.
	Related []Related
	Version uint64
}

// Item is a resource that was found.
type Item struct {
	UID, Cluster string
	// Hub is true for a resource of the hub itself.
	Hub bool
	// Version in which the resource last changed.
	Version uint64
	// Object has the properties.
	Object Object
	// RelatedTo are the UIDs of the matches that a related item is related to; empty for others.
	RelatedTo []string
}

// Object is the properties of an item as a JSON object: typed, in the order of their names, valid and
// compact, with <, > and & as they are.
type Object interface {
	// AppendJSON appends the object. It may be called at any time by anyone, and appends
	// the same always.
	AppendJSON(dst []byte) []byte
}

// JSON is an Object that is encoded already.
type JSON []byte

// AppendJSON implements Object.
func (j JSON) AppendJSON(dst []byte) []byte { return append(dst, j...) }

// JSON is the object of the properties, which must not be changed. To append it saves a copy.
func (i *Item) JSON() []byte {
	if encoded, is := i.Object.(JSON); is {
		return encoded
	}
	return i.Object.AppendJSON(nil)
}

// Related are related resources of one kind.
type Related struct {
	Kind  string
	Count int
	Items []Item
}

// CompletionRequest asks for values of a property.
type CompletionRequest struct {
	Property string
	// Prefix restricts the values to those that begin with it, without case.
	Prefix string
	Query  query.Query
	Now    time.Time
	// Limit bounds the values; negative for all.
	Limit int
}

// Completion are the values of a property, in order: numbers by number, others by bytes. The values
// of a map are "key=value", those of a list its leaves.
type Completion struct {
	Values []ValueCount
	// More is true if Limit has cut values off.
	More bool
	// Numbers is true if all values are numbers, and Times if all are times; Min and Max are then the
	// first and last of all values, also of those that Limit cuts off.
	Numbers, Times bool
	Min, Max       string
}

// ValueCount is a value and how many resources have it.
type ValueCount struct {
	Value string
	Count int
}

// PropertySchema describes a property.
type PropertySchema struct {
	Name string
	// Type is that of its values; String if they differ.
	Type query.Type
	// Time is true if all its values are times.
	Time bool
}

// Change is a change of one resource.
type Change struct {
	Version uint64
	Cluster string
	Hub     bool
	UID     string
	// Before and After are the properties; nil before it existed and after it was deleted.
	Before, After query.Properties
}

// ClassOf is what decides who may find a resource. A Secret of a managed cluster is one by
// kind or by plural name, without case and in whatever group, so that no spelling hides it.
func ClassOf(cluster string, hub bool, properties query.Properties) visibility.Class {
	class := visibility.Class{Cluster: cluster, Hub: hub}
	var kind string
	for i := range properties {
		p := &properties[i]
		if p.Type != query.String {
			continue
		}
		switch text := p.Leaves[0].Text; p.Name {
		case query.APIGroup:
			class.Group = text
		case query.KindPlural:
			class.Resource = text
		case query.Namespace:
			class.Namespace = text
		case query.Kind:
			kind = text
		}
	}
	if !hub && (strings.EqualFold(kind, "Secret") || strings.EqualFold(class.Resource, "secrets")) {
		class.Group, class.Resource = "", "secrets"
	}
	return class
}

// Text is the text of a property with a single leaf; empty if there is none.
func Text(properties query.Properties, name string) string {
	for i := range properties {
		if p := &properties[i]; p.Name == name && p.Type < query.Map {
			return p.Leaves[0].Text
		}
	}
	return ""
}
