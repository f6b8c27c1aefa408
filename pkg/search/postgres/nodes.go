package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// node is the key of a resource.
type node struct {
	cluster int32
	rid     int64
}

// eachRow reads columns of resources r.
func (v *view) eachRow(ctx context.Context, nodes []node, columns string, read func(pgx.Rows) error) error {
	return v.eachNode(ctx, nodes, "SELECT "+columns+" FROM f JOIN "+table("resources")+" r ON r.cluster = f.cluster AND r.rid = f.rid", read)
}

// eachEdge reads the edges from and to nodes. An edge between two of the nodes may occur twice.
func (v *view) eachEdge(ctx context.Context, nodes []node, call func(source, dest node)) error {
	edges := "SELECT e.cluster, e.source, e.dest FROM f JOIN " + table("edges") + " e ON e.cluster = f.cluster AND "
	return v.eachNode(ctx, nodes, edges+"e.source = f.rid UNION ALL "+edges+"e.dest = f.rid", func(rows pgx.Rows) error {
		var source, dest node
		_, err := pgx.ForEachRow(rows, []any{&source.cluster, &source.rid, &dest.rid}, func() error {
			dest.cluster = source.cluster
			call(source, dest)
			return nil
		})
		return err
	})
}

// eachNeighborClass counts the resources at a distance of one edge from nodes, by class. If others is true, it does not
// count the nodes themselves.
func (v *view) eachNeighborClass(ctx context.Context, nodes []node, others bool, call func(class int64, n int) error) error {
	edges := " FROM f JOIN " + table("edges") + " e ON e.cluster = f.cluster AND "
	near := "SELECT e.cluster, e.dest AS rid" + edges + "e.source = f.rid UNION SELECT e.cluster, e.source" + edges + "e.dest = f.rid"
	if others {
		near += " EXCEPT SELECT cluster, rid FROM f"
	}
	return v.eachNode(ctx, nodes, "SELECT r.class, count(*) FROM ("+near+") n JOIN "+table("resources")+
		" r ON r.cluster = n.cluster AND r.rid = n.rid GROUP BY r.class", func(rows pgx.Rows) error {
		var class int64
		var n int
		_, err := pgx.ForEachRow(rows, []any{&class, &n}, func() error { return call(class, n) })
		return err
	})
}

// eachNode executes a statement with a table f of nodes.
func (v *view) eachNode(ctx context.Context, nodes []node, statement string, read func(pgx.Rows) error) error {
	if len(nodes) == 0 {
		return nil
	}
	clusters, rids := make([]int32, len(nodes)), make([]int64, len(nodes))
	for i, at := range nodes {
		clusters[i], rids[i] = at.cluster, at.rid
	}
	from := "WITH f AS MATERIALIZED (SELECT * FROM unnest($1::integer[], $2::bigint[]) f(cluster, rid)) "
	return v.queryWithout(ctx, oneByOne, from+statement, []any{clusters, rids}, read)
}
