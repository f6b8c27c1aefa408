package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

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

// compareEdges determines new and deleted edges. The edges of deleted resources are deleted as
// well.
func (a *application) compareEdges(ctx context.Context) error {
	add, remove := a.edgesOf(a.report.AddEdges), a.edgesOf(a.report.DeleteEdges)
	gone := map[int64]bool{}
	for i := range a.changed {
		if a.changed[i].after == nil {
			gone[a.changed[i].rid] = true
		}
	}
	a.before = edgeSet{}
	if !a.created && (a.report.Full || len(add)+len(remove)+len(gone) > 0) {
		if err := a.readEdges(ctx, gone, add, remove); err != nil {
			return fmt.Errorf("reading edges: %w", err)
		}
	}
	a.after = edgeSet{}
	if !a.report.Full {
		for e := range a.before {
			if !gone[e.source] && !gone[e.dest] {
				a.after[e] = struct{}{}
			}
		}
	}
	for _, e := range remove {
		delete(a.after, e)
	}
	for _, e := range add {
		a.after[e] = struct{}{}
	}
	for e := range a.after {
		if _, had := a.before[e]; !had {
			a.applied.EdgesAdded++
		}
	}
	a.applied.EdgesDeleted = len(a.before) + a.applied.EdgesAdded - len(a.after)
	a.applied.Edges += a.applied.EdgesAdded - a.applied.EdgesDeleted
	return nil
}

func (a *application) edgesOf(reported []search.Edge) []edge {
	edges := make([]edge, len(reported))
	for i := range reported {
		edges[i] = a.edgeOf(&reported[i])
	}
	return edges
}

// readEdges reads the stored edges that the report may change.
func (a *application) readEdges(ctx context.Context, gone map[int64]bool, add, remove []edge) error {
	table := a.engine.table("edges")
	statement := "SELECT source, dest, type FROM " + table + " WHERE cluster = $1"
	args := []any{a.cluster}
	if !a.report.Full {
		rids := make([]int64, 0, len(gone))
		for rid := range gone {
			rids = append(rids, rid)
		}
		sources, dests, relations := columnsOf(append(add[:len(add):len(add)], remove...))
		statement += ` AND source = ANY($2)
			UNION SELECT source, dest, type FROM ` + table + ` WHERE cluster = $1 AND dest = ANY($2)
			UNION SELECT e.source, e.dest, e.type FROM ` + table + ` e, unnest($3::bigint[], $4::bigint[], $5::text[]) r(source, dest, type)
			WHERE e.cluster = $1 AND e.source = r.source AND e.dest = r.dest AND e.type = r.type`
		args = append(args, rids, sources, dests, relations)
	}
	rows, err := a.tx.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	var one edge
	_, err = pgx.ForEachRow(rows, []any{&one.source, &one.dest, &one.relation}, func() error {
		a.before[one] = struct{}{}
		return nil
	})
	return err
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
		_, err := a.tx.Exec(ctx, "DELETE FROM "+a.engine.table("edges")+` e USING unnest($2::bigint[], $3::bigint[], $4::text[]) g(source, dest, type)
			WHERE e.cluster = $1 AND e.source = g.source AND e.dest = g.dest AND e.type = g.type`, a.cluster, sources, dests, relations)
		if err != nil {
			return fmt.Errorf("removing edges: %w", err)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	// Inserts are faster in the order of the index.
	slices.SortFunc(fresh, func(x, y edge) int {
		return cmp.Or(cmp.Compare(x.source, y.source), cmp.Compare(x.dest, y.dest), strings.Compare(x.relation, y.relation))
	})
	_, err := a.tx.CopyFrom(ctx, pgx.Identifier{a.engine.options.Schema, "edges"}, []string{"cluster", "source", "dest", "type"},
		pgx.CopyFromSlice(len(fresh), func(i int) ([]any, error) {
			return []any{a.cluster, fresh[i].source, fresh[i].dest, fresh[i].relation}, nil
		}))
	if err != nil {
		return fmt.Errorf("storing edges: %w", err)
	}
	return nil
}
