package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	gocmp "github.com/google/go-cmp/cmp"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// oracle is a search.Engine that implements the contract literally: it reads every resource for each
// request. Differential compares other engines with it. Its data is in memory only.
type oracle struct {
	mu       sync.RWMutex
	version  uint64
	clusters map[string]*oracleCluster
	changes  []search.Change
	// changed is closed and replaced with each version.
	changed chan struct{}
}

type oracleCluster struct {
	state     search.ClusterState
	resources map[string]oracleResource
	edges     map[edgeKey]struct{}
}

type oracleResource struct {
	uid, cluster string
	hub          bool
	version      uint64
	properties   query.Properties
	internal     query.Properties
}

// edgeKey identifies an edge.
type edgeKey struct{ source, dest, relation string }

func keyOf(e search.Edge) edgeKey { return edgeKey{e.SourceUID, e.DestUID, e.Type} }

func newOracle() *oracle {
	return &oracle{clusters: map[string]*oracleCluster{}, changed: make(chan struct{})}
}

// sameProperties treats an empty list of leaves like a missing one.
func sameProperties(a, b query.Properties) bool { return gocmp.Equal(a, b, cmpopts.EquateEmpty()) }

func (o *oracle) Apply(ctx context.Context, report *search.Report) (*search.Applied, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.clusters[report.Cluster]
	if c == nil {
		c = &oracleCluster{resources: map[string]oracleResource{}, edges: map[edgeKey]struct{}{}}
		o.clusters[report.Cluster] = c
	}
	o.version++
	applied := &search.Applied{Version: o.version}
	before := maps.Clone(c.edges)
	o.put(c, report, applied)
	o.remove(c, report, applied)
	c.relate(report)
	for key := range c.edges {
		if _, had := before[key]; !had {
			applied.EdgesAdded++
		}
	}
	applied.EdgesDeleted = len(before) + applied.EdgesAdded - len(c.edges)
	applied.Resources, applied.Edges = len(c.resources), len(c.edges)
	reported := report.Time
	if reported.IsZero() {
		reported = c.state.Reported
	}
	c.state = search.ClusterState{
		Name: report.Cluster, Hub: report.Hub, Resources: applied.Resources, Edges: applied.Edges, Reported: reported,
	}
	for _, r := range c.resources {
		if !report.Hub && search.ClassOf(r.cluster, r.hub, r.properties).Secret() {
			c.state.Secrets++
		}
	}
	o.publish()
	return applied, nil
}

func (o *oracle) put(c *oracleCluster, report *search.Report, applied *search.Applied) {
	for _, r := range report.Put {
		old, had := c.resources[r.UID]
		if had && sameProperties(old.properties, r.Properties) && sameProperties(old.internal, r.Internal) {
			continue
		}
		change := search.Change{Version: o.version, Cluster: report.Cluster, Hub: report.Hub, UID: r.UID, After: r.Properties, Internal: r.Internal, Bytes: changeBytes}
		if had {
			change.Before = old.properties
			applied.Updated++
		} else {
			applied.Added++
		}
		o.changes = append(o.changes, change)
		c.resources[r.UID] = oracleResource{uid: r.UID, cluster: report.Cluster, hub: report.Hub, version: o.version, properties: r.Properties, internal: r.Internal}
	}
}

func (o *oracle) remove(c *oracleCluster, report *search.Report, applied *search.Applied) {
	gone := slices.Clone(report.Delete)
	if report.Full {
		kept := map[string]bool{}
		for _, r := range report.Put {
			kept[r.UID] = true
		}
		for uid := range c.resources {
			if !kept[uid] && uid != report.Keep {
				gone = append(gone, uid)
			}
		}
	}
	slices.Sort(gone)
	for _, uid := range gone {
		old, had := c.resources[uid]
		if !had {
			continue
		}
		applied.Deleted++
		delete(c.resources, uid)
		o.changes = append(o.changes, search.Change{Version: o.version, Cluster: old.cluster, Hub: old.hub, UID: uid, Before: old.properties, Bytes: changeBytes})
		maps.DeleteFunc(c.edges, func(key edgeKey, _ struct{}) bool { return key.source == uid || key.dest == uid })
	}
}

func (c *oracleCluster) relate(report *search.Report) {
	if report.Full {
		clear(c.edges)
	}
	for _, e := range report.DeleteEdges {
		delete(c.edges, keyOf(e))
	}
	for _, e := range report.AddEdges {
		c.edges[keyOf(e)] = struct{}{}
	}
}

func (o *oracle) publish() {
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *oracle) RemoveCluster(_ context.Context, cluster string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.clusters[cluster]
	if c == nil {
		return nil
	}
	o.version++
	o.remove(c, &search.Report{Cluster: cluster, Full: true}, &search.Applied{})
	delete(o.clusters, cluster)
	o.publish()
	return nil
}

func (o *oracle) Clusters(context.Context) ([]search.ClusterState, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	var states []search.ClusterState
	for _, name := range slices.Sorted(maps.Keys(o.clusters)) {
		states = append(states, o.clusters[name].state)
	}
	return states, nil
}

func (o *oracle) Version(context.Context) (uint64, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.version, nil
}

// changeBytes is the memory of each change, as the oracle counts it.
const changeBytes = 1

func (o *oracle) Changes(ctx context.Context, after search.Position, limit, maxBytes int) ([]search.Change, search.Position, error) {
	for {
		o.mu.RLock()
		version, changed := o.version, o.changed
		first := o.firstOf(after.Version+1) + after.Part
		pending := o.changes[first:]
		end := min(len(pending), max(1, min(limit, maxBytes/changeBytes)))
		next := search.Position{Version: version}
		if end < len(pending) {
			next = search.Position{Version: pending[end].Version - 1, Part: first + end - o.firstOf(pending[end].Version)}
		}
		o.mu.RUnlock()
		if after.Version > version {
			return nil, search.Position{}, fmt.Errorf("version %d: %w", after.Version, search.ErrExpired)
		}
		if len(pending) > 0 {
			return slices.Clone(pending[:end]), next, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, search.Position{Version: version}, nil
		}
	}
}

// firstOf returns the index of the first change of a version or a later one.
func (o *oracle) firstOf(version uint64) int {
	first, _ := slices.BinarySearchFunc(o.changes, version, func(c search.Change, v uint64) int { return cmp.Compare(c.Version, v) })
	return first
}

func (o *oracle) Internal(_ context.Context, cluster string, visit func(*search.Resource) error) (uint64, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if c := o.clusters[cluster]; c != nil {
		for _, r := range c.resources {
			if len(r.internal) == 0 {
				continue
			}
			if err := visit(&search.Resource{UID: r.uid, Properties: r.properties, Internal: r.internal}); err != nil {
				return 0, err
			}
		}
	}
	return o.version, nil
}

func (o *oracle) HubClasses(context.Context) ([]visibility.Class, uint64, error) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	classes := map[visibility.Class]bool{}
	for r := range o.all() {
		if r.hub {
			classes[search.ClassOf(r.cluster, true, r.properties)] = true
		}
	}
	return slices.Collect(maps.Keys(classes)), o.version, nil
}

func (o *oracle) Close() error { return nil }

// all yields every resource. The caller must hold the lock.
func (o *oracle) all() func(func(oracleResource) bool) {
	return func(yield func(oracleResource) bool) {
		for _, c := range o.clusters {
			for _, r := range c.resources {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (r oracleResource) visible(scope visibility.Scope) bool {
	return scope.Allows(visibility.Object{
		Class: search.ClassOf(r.cluster, r.hub, r.properties), Name: search.Text(r.properties, query.Name),
	})
}

func (r oracleResource) item() search.Item {
	return search.Item{UID: r.uid, Cluster: r.cluster, Hub: r.hub, Version: r.version, Object: search.JSON(r.properties.AppendJSON(nil))}
}

// leaves returns the type and the leaves of a property. The property cluster has the name of the
// reporting cluster.
func (r oracleResource) leaves(property string) (query.Type, []query.Leaf) {
	if property == query.Cluster {
		return query.String, []query.Leaf{{Type: query.String, Text: r.cluster}}
	}
	if p := r.properties.Get(property); p != nil {
		return p.Type, p.Leaves
	}
	return query.String, nil
}

// found returns the resources that match the query and are visible in the scope. The caller must hold
// the lock.
func (o *oracle) found(scope visibility.Scope, q *query.Query, now time.Time) []oracleResource {
	var found []oracleResource
	for r := range o.all() {
		if r.visible(scope) && q.Matches(r.cluster, r.properties, now) {
			found = append(found, r)
		}
	}
	return found
}
