package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// fewPartitions is up to how many clusters are asked one by one, each in its own partition.
const fewPartitions = 8

// node is a resource by its key.
type node struct {
	cluster int32
	rid     int64
}

// eachRow reads the rows of some resources r.
func (v *view) eachRow(ctx context.Context, nodes []node, columns string, read func(pgx.Rows) error) error {
	table := v.engine.table("resources") + " r"
	return v.eachCluster(ctx, nodes, func(from, condition func(string) string) string {
		return "SELECT " + columns + " FROM " + from(table) + " WHERE " + condition("r.cluster/r.rid")
	}, read)
}

// eachCluster runs a statement for nodes: for few clusters one for each, which concern one partition
// each, and otherwise one for all. The statement is made with the table to begin with, and the
// condition that two columns "cluster/rid" are a node.
func (v *view) eachCluster(ctx context.Context, nodes []node, statement func(from, condition func(string) string) string, read func(pgx.Rows) error) error {
	if len(nodes) == 0 {
		return nil
	}
	byCluster := map[int32][]int64{}
	for _, at := range nodes {
		byCluster[at.cluster] = append(byCluster[at.cluster], at.rid)
	}
	if len(byCluster) > fewPartitions {
		clusters, rids := make([]int32, len(nodes)), make([]int64, len(nodes))
		for i, at := range nodes {
			clusters[i], rids[i] = at.cluster, at.rid
		}
		text := statement(func(table string) string {
			return "unnest($1::integer[], $2::bigint[]) f(cluster, rid) CROSS JOIN " + table
		}, pairCondition)
		rows, err := v.tx.Query(ctx, text, clusters, rids)
		if err != nil {
			return err
		}
		return read(rows)
	}
	text := statement(func(table string) string { return table }, singleCondition)
	batch := &pgx.Batch{}
	for cluster, rids := range byCluster {
		batch.Queue(text, cluster, rids)
	}
	results := v.tx.SendBatch(ctx, batch)
	for range byCluster {
		rows, err := results.Query()
		if err == nil {
			err = read(rows)
		}
		if err != nil {
			// The transaction is over with this error; that of the batch says no more.
			_ = results.Close()
			return fmt.Errorf("reading by key: %w", err)
		}
	}
	return results.Close()
}

func pairCondition(columns string) string {
	cluster, rid, _ := strings.Cut(columns, "/")
	return cluster + " = f.cluster AND " + rid + " = f.rid"
}

// singleCondition names the cluster as often as there are tables, so that each is one partition.
func singleCondition(columns string) string {
	cluster, rid, _ := strings.Cut(columns, "/")
	return cluster + " = $1 AND " + rid + " = ANY($2::bigint[])"
}
