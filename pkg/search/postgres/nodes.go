package postgres

import "context"

// node is the key of a resource.
type node struct {
	cluster int32
	rid     int64
}

// rowsOf is the start of a statement that reads columns of the resources r with the keys in a table f.
func rowsOf(columns string) string {
	return "SELECT " + columns + " FROM f JOIN " + table("resources") + " r ON r.cluster = f.cluster AND r.rid = f.rid"
}

// eachEdge reads the edges from and to nodes, in both directions. An edge between two of the nodes may occur twice.
func (v *view) eachEdge(ctx context.Context, nodes []node, call func(from, to node) error) error {
	edges := "SELECT e.cluster, e.source, e.dest FROM f JOIN " + table("edges") + " e ON e.cluster = f.cluster AND "
	var source, dest node
	return v.eachNode(ctx, nodes, edges+"e.source = f.rid UNION ALL "+edges+"e.dest = f.rid", []any{&source.cluster, &source.rid, &dest.rid}, func() error {
		dest.cluster = source.cluster
		if err := call(source, dest); err != nil {
			return err
		}
		return call(dest, source)
	})
}

// eachNeighborClass counts the resources at a distance of one edge from nodes, by class. If others is true, it does not
// count the nodes themselves.
func (v *view) eachNeighborClass(ctx context.Context, nodes []node, others bool, call func(of *class, n int)) error {
	edges := " FROM f JOIN " + table("edges") + " e ON e.cluster = f.cluster AND "
	near := "SELECT e.cluster, e.dest AS rid" + edges + "e.source = f.rid UNION SELECT e.cluster, e.source" + edges + "e.dest = f.rid"
	if others {
		near += " EXCEPT SELECT cluster, rid FROM f"
	}
	var id int64
	var n int
	return v.eachNode(ctx, nodes, "SELECT r.class, count(*) FROM ("+near+") n JOIN "+table("resources")+
		" r ON r.cluster = n.cluster AND r.rid = n.rid GROUP BY r.class", []any{&id, &n}, v.ofClass(&id, func(of *class) { call(of, n) }))
}

// eachNode executes a statement with a table f of nodes. Each of its rows is scanned, and then passed to each.
func (v *view) eachNode(ctx context.Context, nodes []node, statement string, scans []any, each func() error) error {
	if len(nodes) == 0 {
		return nil
	}
	clusters, rids := make([]int32, len(nodes)), make([]int64, len(nodes))
	for i, at := range nodes {
		clusters[i], rids[i] = at.cluster, at.rid
	}
	from := "WITH f AS MATERIALIZED (SELECT * FROM unnest($1::integer[], $2::bigint[]) f(cluster, rid)) "
	return v.rowsWithout(ctx, oneByOne, from+statement, []any{clusters, rids}, scans, each)
}
