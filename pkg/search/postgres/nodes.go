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

// statements read nodes. one is for a single cluster, and so for one partition, with the arguments
// $1 and $2. any is for any clusters, with a table f of nodes.
type statements struct{ one, any string }

// eachRow reads columns of resources r.
func (v *view) eachRow(ctx context.Context, nodes []node, columns string, read func(pgx.Rows) error) error {
	table := v.engine.table("resources")
	return v.eachCluster(ctx, nodes, statements{
		one: "SELECT " + columns + " FROM " + table + " r WHERE r.cluster = $1 AND r.rid = ANY($2::bigint[])",
		any: "SELECT " + columns + " FROM unnest($1::integer[], $2::bigint[]) f(cluster, rid) JOIN " + table + " r ON r.cluster = f.cluster AND r.rid = f.rid",
	}, read)
}

// eachEdge reads the edges from and to nodes. An edge between two of the nodes may occur twice.
func (v *view) eachEdge(ctx context.Context, nodes []node, call func(source, dest node)) error {
	table := v.engine.table("edges")
	return v.eachCluster(ctx, nodes, statements{
		one: "SELECT cluster, source, dest FROM " + table + " WHERE cluster = $1 AND (source = ANY($2::bigint[]) OR dest = ANY($2::bigint[]))",
		any: "SELECT e.cluster, e.source, e.dest FROM unnest($1::integer[], $2::bigint[]) f(cluster, rid) JOIN " + table +
			" e ON e.cluster = f.cluster AND e.source = f.rid" +
			" UNION ALL SELECT e.cluster, e.source, e.dest FROM unnest($1::integer[], $2::bigint[]) f(cluster, rid) JOIN " + table +
			" e ON e.cluster = f.cluster AND e.dest = f.rid",
	}, func(rows pgx.Rows) error {
		var source, dest node
		_, err := pgx.ForEachRow(rows, []any{&source.cluster, &source.rid, &dest.rid}, func() error {
			dest.cluster = source.cluster
			call(source, dest)
			return nil
		})
		return err
	})
}

// eachNeighborClass counts the resources at a distance of one edge from nodes, by class. If others
// is true, it does not count the nodes themselves.
func (v *view) eachNeighborClass(ctx context.Context, nodes []node, others bool, call func(class int64, n int) error) error {
	edges, resources := v.engine.table("edges"), v.engine.table("resources")
	var notOne, notAny string
	if others {
		notOne, notAny = " AND r.rid <> ALL($2::bigint[])", " EXCEPT SELECT * FROM unnest($1::integer[], $2::bigint[])"
	}
	return v.eachCluster(ctx, nodes, statements{
		one: "SELECT r.class, count(*) FROM " + resources + " r WHERE r.cluster = $1 AND r.rid IN (SELECT dest FROM " + edges +
			" WHERE cluster = $1 AND source = ANY($2::bigint[]) UNION ALL SELECT source FROM " + edges +
			" WHERE cluster = $1 AND dest = ANY($2::bigint[]))" + notOne + " GROUP BY r.class",
		any: "SELECT r.class, count(*) FROM (SELECT e.cluster, e.dest AS rid FROM unnest($1::integer[], $2::bigint[]) f(cluster, rid) JOIN " + edges +
			" e ON e.cluster = f.cluster AND e.source = f.rid" +
			" UNION SELECT e.cluster, e.source FROM unnest($1::integer[], $2::bigint[]) f(cluster, rid) JOIN " + edges +
			" e ON e.cluster = f.cluster AND e.dest = f.rid" + notAny + ") n JOIN " + resources +
			" r ON r.cluster = n.cluster AND r.rid = n.rid GROUP BY r.class",
	}, func(rows pgx.Rows) error {
		var class int64
		var n int
		_, err := pgx.ForEachRow(rows, []any{&class, &n}, func() error { return call(class, n) })
		return err
	})
}

// eachCluster executes a statement for each cluster, or one statement for all clusters if there are
// many.
func (v *view) eachCluster(ctx context.Context, nodes []node, ask statements, read func(pgx.Rows) error) error {
	if len(nodes) == 0 {
		return nil
	}
	byCluster := map[int32][]int64{}
	for _, at := range nodes {
		byCluster[at.cluster] = append(byCluster[at.cluster], at.rid)
	}
	if len(byCluster) > fewClusters {
		clusters, rids := make([]int32, len(nodes)), make([]int64, len(nodes))
		for i, at := range nodes {
			clusters[i], rids[i] = at.cluster, at.rid
		}
		return v.queryWithout(ctx, oneByOne, ask.any, []any{clusters, rids}, read)
	}
	for cluster, rids := range byCluster {
		rows, err := v.tx.Query(ctx, ask.one, cluster, rids)
		if err != nil {
			return err
		}
		if err := read(rows); err != nil {
			return err
		}
	}
	return nil
}
