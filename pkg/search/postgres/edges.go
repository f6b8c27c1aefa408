package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// edge is a relation between two resources of a cluster, which need not exist.
type edge struct {
	source, dest int64
	relation     string
}

type edgeSet map[edge]struct{}

func (a *application) edgeOf(reported *search.Edge) edge {
	h := a.engine.hash
	return edge{
		source: h.resource(a.report.Cluster, reported.SourceUID), dest: h.resource(a.report.Cluster, reported.DestUID),
		relation: escape(reported.Type),
	}
}

// readEdges reads the stored edges that the report may change.
func (a *application) readEdges() {
	a.before = edgeSet{}
	changes := append(a.edgesOf(a.report.AddEdges), a.edgesOf(a.report.DeleteEdges)...)
	if a.created || !a.report.Full && len(changes)+a.applied.Deleted == 0 {
		return
	}
	edges := table("edges")
	statement := "SELECT source, dest, type FROM " + edges + " WHERE cluster = $1"
	args := []any{a.cluster}
	if !a.report.Full {
		sources, dests, relations := columnsOf(changes)
		statement += ` AND source = ANY($2)
			UNION SELECT source, dest, type FROM ` + edges + ` WHERE cluster = $1 AND dest = ANY($2)
			UNION SELECT e.source, e.dest, e.type FROM ` + edges + ` e, unnest($3::bigint[], $4::bigint[], $5::text[]) r(source, dest, type)
			WHERE e.cluster = $1 AND e.source = r.source AND e.dest = r.dest AND e.type = r.type`
		args = append(args, a.goneSet().UnsortedList(), sources, dests, relations)
	}
	var one edge
	a.pipeline.read("reading edges", []any{&one.source, &one.dest, &one.relation}, func() error {
		a.before[one] = struct{}{}
		return nil
	}, statement, args...)
}

// goneSet returns the deleted resources.
func (a *application) goneSet() sets.Set[int64] {
	gone := sets.Set[int64]{}
	for i := range a.changed {
		if a.changed[i].after == nil {
			gone.Insert(a.changed[i].rid)
		}
	}
	return gone
}

// compareEdges determines new and deleted edges. The edges of deleted resources are deleted as
// well.
func (a *application) compareEdges() {
	a.after = edgeSet{}
	if !a.report.Full {
		gone := a.goneSet()
		for e := range a.before {
			if !gone.HasAny(e.source, e.dest) {
				a.after[e] = struct{}{}
			}
		}
	}
	for _, e := range a.edgesOf(a.report.DeleteEdges) {
		delete(a.after, e)
	}
	for _, e := range a.edgesOf(a.report.AddEdges) {
		a.after[e] = struct{}{}
	}
	for e := range a.after {
		if _, had := a.before[e]; !had {
			a.applied.EdgesAdded++
		}
	}
	a.applied.EdgesDeleted = len(a.before) + a.applied.EdgesAdded - len(a.after)
	a.applied.Edges += a.applied.EdgesAdded - a.applied.EdgesDeleted
}

func (a *application) edgesOf(reported []search.Edge) []edge {
	edges := make([]edge, len(reported))
	for i := range reported {
		edges[i] = a.edgeOf(&reported[i])
	}
	return edges
}

func columnsOf(edges []edge) (sources, dests []int64, relations []string) {
	sources, dests, relations = make([]int64, len(edges)), make([]int64, len(edges)), make([]string, len(edges))
	for i, e := range edges {
		sources[i], dests[i], relations[i] = e.source, e.dest, e.relation
	}
	return sources, dests, relations
}

func (a *application) storeEdges(ctx context.Context) error {
	var fresh, gone []edge
	for e := range a.after {
		if _, had := a.before[e]; !had {
			fresh = append(fresh, e)
		}
	}
	for e := range a.before {
		if _, stays := a.after[e]; !stays {
			gone = append(gone, e)
		}
	}
	if len(gone) > 0 {
		sources, dests, relations := columnsOf(gone)
		a.pipeline.add("removing edges", "DELETE FROM "+table("edges")+` e USING unnest($2::bigint[], $3::bigint[], $4::text[]) g(source, dest, type)
			WHERE e.cluster = $1 AND e.source = g.source AND e.dest = g.dest AND e.type = g.type`, a.cluster, sources, dests, relations)
	}
	// Inserts are faster in the order of the index.
	slices.SortFunc(fresh, func(x, y edge) int {
		return cmp.Or(cmp.Compare(x.source, y.source), cmp.Compare(x.dest, y.dest), strings.Compare(x.relation, y.relation))
	})
	return a.pipeline.insert(ctx, "storing edges", "edges", []string{"cluster", "source", "dest", "type"}, len(fresh), func(i int) []any {
		return []any{a.cluster, fresh[i].source, fresh[i].dest, fresh[i].relation}
	})
}
