package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

func (c *condition) builder() *builder { return &builder{engine: c.engine, clusters: c.clusters} }

// row is a resource that is valid until the next resource is read.
type row struct {
	class        *class
	rid, version int64
	uid, doc     string
	properties   query.Properties
}

// each executes call for each matching resource, in no particular order, with decoded properties.
func (c *condition) each(ctx context.Context, v *view, classes func(*builder) string, call func(*row) error) error {
	b := c.builder()
	rows, err := v.tx.Query(ctx, "SELECT r.class, r.rid, r.version, r.uid, r.doc FROM "+table("resources")+" r WHERE "+c.where(b, classes(b)), b.args...)
	if err != nil {
		return err
	}
	var one row
	var id int64
	read := 0
	_, err = pgx.ForEachRow(rows, []any{&id, &one.rid, &one.version, &one.uid, &one.doc}, func() error {
		read++
		if one.class == nil || one.class.id != id {
			if one.class = v.class(id); one.class == nil {
				return errUnknownClass
			}
		}
		properties, err := query.DecodeProperties([]byte(one.doc))
		if err != nil {
			return fmt.Errorf("resource %s: %w", one.uid, err)
		}
		if c.refine && !c.rest.Matches(one.class.cluster.name, properties, c.now) {
			return nil
		}
		one.properties = properties
		one.uid = unescape(one.uid)
		return call(&one)
	})
	if c.refine {
		registerMetrics()
		compared.Add(float64(read))
	}
	return err
}
