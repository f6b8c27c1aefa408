// Package search finds resources of the fleet. An Engine stores the reports of clusters and answers requests of
// callers, each within the Scope of the caller.
package search

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

var (
	// ErrExpired is the error for a continue token or a version that the engine does not know any
	// more. The caller must start again.
	ErrExpired = errors.New("the position is too old")
	// ErrInUse is the error for data that another process has open.
	ErrInUse = errors.New("the data is in use by another process")
	// ErrUnavailable is the error while a dependency of the engine, such as its database, is unavailable. The
	// caller may retry. The wrapped error may contain host names and is only for the log.
	ErrUnavailable = errors.New("the engine is unavailable")
)

// Engine stores and finds resources. Its methods are safe for concurrent use. Reads take a Scope.
// Resources outside of the scope do not appear in items, counts, related resources, values or
// properties.
type Engine interface {
	// Apply stores a report. When it returns, the report survives a crash of the process and is
	// visible to every read that starts later. Reads include a report completely or not at all.
	Apply(ctx context.Context, report *Report) (*Applied, error)
	// RemoveCluster removes a cluster and all its resources.
	RemoveCluster(ctx context.Context, cluster string) error
	// Clusters returns the clusters with stored resources, by name. It takes no Scope: the caller must
	// check which users may receive them.
	Clusters(ctx context.Context) ([]ClusterState, error)

	// Search executes a request.
	Search(ctx context.Context, scope visibility.Scope, request *Request) (*Result, error)
	// Complete returns the values of a property in the resources that match a query.
	Complete(ctx context.Context, scope visibility.Scope, request *CompletionRequest) (*Completion, error)
	// Schema returns the properties of the resources that match a query, by name, except hidden
	// ones.
	Schema(ctx context.Context, scope visibility.Scope, q *query.Query, now time.Time) ([]PropertySchema, error)
	// GetMany returns the resources with the UIDs that are in the scope, in the order of the UIDs.
	GetMany(ctx context.Context, scope visibility.Scope, uids []string) ([]Item, error)

	// Version returns the version of the last report that reads include. It never decreases as long
	// as the data is kept, including restarts.
	Version(ctx context.Context) (uint64, error)
	ChangeLog
	// Internal calls visit with each resource of a cluster that has internal properties, in any order, and returns
	// the version of the state that it reads. It ends with the error of visit, if any. The resource is valid only
	// during the call of visit. Internal takes no Scope: the caller must not pass the resources on to users.
	Internal(ctx context.Context, cluster string, visit func(*Resource) error) (uint64, error)
	// HubClasses returns the classes of the stored resources of the hub, and a number that changes
	// whenever the classes change.
	HubClasses(ctx context.Context) ([]visibility.Class, uint64, error)

	// Close stops the background work of the engine and makes the data durable.
	Close() error
}

// ChangeLog contains the last changes.
type ChangeLog interface {
	// Changes returns the changes after a position, in order, and the position after them. It returns
	// at most max changes, and no further change if they take bytes of memory. If there are none, it
	// waits for changes until ctx ends; then it returns the current version and no error. It returns
	// ErrExpired for a version that is too old or unknown. It takes no Scope: watches match each change
	// themselves.
	Changes(ctx context.Context, after Position, max, bytes int) ([]Change, Position, error)
}

// Get returns one resource, or nil if the scope contains none with the UID.
func Get(ctx context.Context, engine Engine, scope visibility.Scope, uid string) (*Item, error) {
	items, err := engine.GetMany(ctx, scope, []string{uid})
	if err != nil || len(items) == 0 {
		return nil, err
	}
	return &items[0], nil
}

// ClustersOf returns the names of the clusters to which a resource with the UID can belong: of a resource on a cluster,
// and of the resource of kind Cluster.
func ClustersOf(uid string) []string {
	var names []string
	if name, _, is := strings.Cut(uid, "/"); is {
		names = append(names, name)
	}
	if name, is := strings.CutPrefix(uid, ClusterUIDPrefix); is {
		names = append(names, name)
	}
	return names
}

// ClusterUIDPrefix is followed by the name of a cluster in the UID of the resource of kind Cluster.
// That resource represents the cluster itself.
const ClusterUIDPrefix = "cluster__"

// Resource is one resource of a cluster.
type Resource struct {
	// UID is "<cluster>/<uid>", or ClusterUIDPrefix and the name of the cluster.
	UID        string
	Properties query.Properties
	// Internal contains properties for the server itself. They are strings, ordered by name and unique. No search
	// returns or finds them; only Changes and Engine.Internal do. Equal texts are stored once.
	Internal query.Properties
}

// Edge relates two resources of one cluster.
type Edge struct {
	SourceUID, DestUID   string
	SourceKind, DestKind string
	// Type is the relation, such as ownedBy or runsOn.
	Type string
}

// Report is one report of a cluster.
type Report struct {
	Cluster string
	// Hub is true if the cluster is the hub itself. The identity of the reporter determines it, not
	// the content.
	Hub bool
	// Full is true if the report contains all resources. All other resources are then removed, except Keep.
	Full bool
	// Keep is the UID of a resource that is not part of full reports, or empty. The resource need not exist.
	Keep string
	// Time is the time of the report. It is zero if the server itself changes the cluster; that is
	// not a report of the cluster.
	Time time.Time
	// Put contains new and changed resources. Delete contains the UIDs of removed resources. A UID
	// that does not exist is not an error.
	Put    []Resource
	Delete []string
	// AddEdges and DeleteEdges change edges. An edge may be reported before its resources. It is
	// counted immediately, and found once both resources exist. The deletion of a resource deletes
	// its edges.
	AddEdges, DeleteEdges []Edge
}

// Applied describes the effect of a report and the resulting state of the cluster.
type Applied struct {
	Added, Updated, Deleted  int
	EdgesAdded, EdgesDeleted int
	Resources, Edges         int
	Version                  uint64
}

// ClusterState describes a cluster with stored resources.
type ClusterState struct {
	Name             string
	Hub              bool
	Resources, Edges int
	// Secrets is the number of Resources that are Secrets of a managed cluster. It is 0 for the
	// hub.
	Secrets int
	// Reported is the time of the last report. It is zero if the cluster has not reported.
	Reported time.Time
	// Incomplete is true if data may have been lost since the last report, so that a full report is
	// required.
	Incomplete bool
}

// Order is a property to order by.
type Order struct {
	Property   string
	Descending bool
}

// Request is a search. Its result always contains the count.
type Request struct {
	Query query.Query
	// Now is the reference time of ages.
	Now time.Time
	// Items requests at most Limit items (all if negative), after the first Offset items or after
	// Continue. Limit is not 0.
	Items    bool
	Limit    int
	Offset   int
	Continue string
	// OrderBy lists the properties to order by. If it is empty, the order is arbitrary, but stable
	// while nothing changes. Numbers come before times, and times before texts. Numbers are ordered
	// by value, texts by bytes, and ties by UID. Resources without the property come last. A map or
	// a list is ordered by its first leaf.
	OrderBy []Order
	// CountBy requests the first CountLimit values of a property in all matches (all if CountLimit is
	// negative), with the number of matches that have them. It is empty if none are requested.
	CountBy    string
	CountLimit int
	// Related requests the counts of the resources that are related to any match, regardless of
	// Limit. RelatedKinds restricts their kinds, case-insensitively. RelatedItems requests up to
	// RelatedLimit items of each kind (all if negative) that are related to the returned items or,
	// if Items is false, to any match. Edges are followed in both directions, up to RelatedDepth edges (0 means 1), but
	// not beyond Nodes and Channels. Matches are not related resources. Every resource on a path must be in the scope.
	Related      bool
	RelatedKinds []string
	RelatedItems bool
	RelatedLimit int
	RelatedDepth int
}

// RelatesKind reports whether the request relates resources of a kind.
func (r *Request) RelatesKind(kind string) bool {
	return len(r.RelatedKinds) == 0 || slices.ContainsFunc(r.RelatedKinds, func(k string) bool { return strings.EqualFold(k, kind) })
}

// Result is the result of a Request.
type Result struct {
	// Count is the exact number of all matches.
	Count int
	Items []Item
	// Continue is the token for the next items. It is empty after the last item.
	Continue string
	// Counts are the values of Request.CountBy, like those of a Completion. MoreCounts is true if more
	// values exist than Request.CountLimit.
	Counts     []ValueCount
	MoreCounts bool
	// Related is ordered by kind.
	Related []Related
	Version uint64
}

// Item is a resource that matches, or that is related to a match.
type Item struct {
	UID, Cluster string
	// Hub is true for a resource of the hub itself.
	Hub bool
	// Version is the version of the last change of the resource.
	Version uint64
	// Object contains the properties.
	Object Object
	// RelatedTo contains the UIDs of the returned items or, if the request has no Items, of the
	// matches to which a related item is related. It is empty for matches.
	RelatedTo []string
}

// Object encodes the properties of an item as a JSON object. The JSON is typed, ordered by name, valid and compact;
// <, > and & are not escaped.
type Object interface {
	// AppendJSON appends the object. It is safe for concurrent use and always appends the same bytes.
	AppendJSON(dst []byte) []byte
}

// JSON is an Object that is already encoded.
type JSON []byte

// AppendJSON implements Object.
func (j JSON) AppendJSON(dst []byte) []byte { return append(dst, j...) }

// JSON returns the encoded properties, which the caller must not change. Object.AppendJSON avoids a copy.
func (i *Item) JSON() []byte {
	if encoded, is := i.Object.(JSON); is {
		return encoded
	}
	return i.Object.AppendJSON(nil)
}

// Related contains the related resources of one kind.
type Related struct {
	Kind  string
	Count int
	Items []Item
}

// CompletionRequest requests the values of a property.
type CompletionRequest struct {
	Property string
	// Prefix restricts the values to values that begin with it, case-insensitively.
	Prefix string
	Query  query.Query
	Now    time.Time
	// Limit bounds the number of values. All values are returned if it is negative.
	Limit int
}

// Completion contains the values of a property in order: numbers by value, others by bytes. The
// values of a map are "key=value". The values of a list are its leaves.
type Completion struct {
	Values []ValueCount
	// More is true if more values exist than Limit.
	More bool
	// Numbers is true if all values are numbers. Times is true if all values are times. In these
	// cases, Min and Max are the first and the last of all values, regardless of Limit.
	Numbers, Times bool
	Min, Max       string
}

// ValueCount is a value and the number of resources that have it.
type ValueCount struct {
	Value string
	Count int
}

// PropertySchema describes a property.
type PropertySchema struct {
	Name string
	// Type is the type of all values, or String if they differ.
	Type query.Type
	// Time is true if all values are times.
	Time bool
}

// Change is a change of one resource.
type Change struct {
	Version uint64
	Cluster string
	Hub     bool
	UID     string
	// Before and After are the properties. Before is nil for a new resource. After is nil for a
	// deleted resource.
	Before, After query.Properties
	// Internal contains the internal properties after the change.
	Internal query.Properties
	// Bytes is the approximate memory of the change, without texts that the engine keeps anyway.
	Bytes int
}

// Position is a position in the changes of an engine. A report may change all resources of a cluster, so a reader may
// stop within a version.
type Position struct {
	// Version is the version up to which all changes precede the position.
	Version uint64
	// Part is the number of changes of the next version that also precede it.
	Part int
}

// WholeChanges returns the changes after a version like Engine.Changes, but all changes of a version together, and
// therefore possibly more than max.
func WholeChanges(ctx context.Context, engine ChangeLog, after uint64, max int) ([]Change, uint64, error) {
	changes, position, err := engine.Changes(ctx, Position{Version: after}, max, math.MaxInt)
	for err == nil && position.Part > 0 {
		if whole := len(changes) - position.Part; whole > 0 {
			return changes[:whole], position.Version, nil
		}
		var more []Change
		more, position, err = engine.Changes(ctx, position, max, math.MaxInt)
		changes = append(changes, more...)
	}
	return changes, position.Version, err
}

// ClassOf returns the class of a resource, which decides which callers can find it. A resource is a
// Secret of a managed cluster if its kind or plural name says so, case-insensitively and in any
// group, so that no spelling hides a Secret.
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

// Text returns the text of a property with a single leaf, or "" if the property does not exist.
func Text(properties query.Properties, name string) string {
	for i := range properties {
		if p := &properties[i]; p.Name == name && p.Type < query.Map {
			return p.Leaves[0].Text
		}
	}
	return ""
}
