package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// itemColumns are the columns of resources r from which items are read.
const itemColumns = "r.class, r.rid, r.version, r.uid, r.doc"

// found is a resource that was read.
type found struct {
	search.Item
	class *class
	rid   int64
	// properties is nil unless each has decoded them.
	properties query.Properties
}

func (f *found) node() node { return node{f.class.cluster.id, f.rid} }

// itemReader reads rows of itemColumns.
type itemReader struct {
	view             *view
	id, rid, version int64
	uid              string
	doc              []byte
}

func (r *itemReader) scans() []any { return []any{&r.id, &r.rid, &r.version, &r.uid, &r.doc} }

// found returns the resource of the last row.
func (r *itemReader) found() (*found, error) {
	of, err := r.view.class(r.id)
	if err != nil {
		return nil, err
	}
	return &found{class: of, rid: r.rid, Item: search.Item{
		UID: unescape(r.uid), Cluster: of.cluster.name, Hub: of.is.Hub, Version: uint64(r.version), Object: search.JSON(r.doc),
	}}, nil
}

func (c *condition) builder() *builder { return &builder{engine: c.engine, clusters: c.clusters} }

// each executes call for each matching resource, in no particular order, with decoded properties.
func (c *condition) each(ctx context.Context, v *view, classes func(*builder) string, call func(*found) error) error {
	b := c.builder()
	r, read := itemReader{view: v}, 0
	statement := "SELECT " + itemColumns + " FROM " + table("resources") + " r WHERE " + c.where(b, classes(b))
	err := v.rows(ctx, statement, b.args, r.scans(), func() error {
		read++
		one, err := r.found()
		if err != nil {
			return err
		}
		if one.properties, err = query.DecodeProperties(r.doc); err != nil {
			return fmt.Errorf("resource %s: %w", one.UID, err)
		}
		if c.refine && !c.rest.Matches(one.Cluster, one.properties, c.now) {
			return nil
		}
		return call(one)
	})
	if c.refine {
		compared.Add(float64(read))
	}
	return err
}

// items reads the items of a statement that returns itemColumns.
func (v *view) items(ctx context.Context, statement string, args []any) ([]*found, error) {
	r := itemReader{view: v}
	var items []*found
	err := v.rows(ctx, statement, args, r.scans(), r.into(&items))
	return items, err
}

// itemsOf reads resources by their keys, in the order of the keys. It omits those that do not exist.
func (v *view) itemsOf(ctx context.Context, nodes []node) ([]*found, error) {
	r := itemReader{view: v}
	items, positions := make([]*found, 0, len(nodes)), make(map[node]int, len(nodes))
	for i, at := range nodes {
		positions[at] = i
	}
	err := v.eachNode(ctx, nodes, rowsOf(itemColumns), r.scans(), r.into(&items))
	slices.SortFunc(items, func(a, b *found) int { return cmp.Compare(positions[a.node()], positions[b.node()]) })
	return items, err
}

func (r *itemReader) into(items *[]*found) func() error {
	return func() error {
		one, err := r.found()
		if err == nil {
			*items = append(*items, one)
		}
		return err
	}
}
