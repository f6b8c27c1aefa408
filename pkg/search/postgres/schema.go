package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// schemas contains properties by name.
type schemas map[string]*search.PropertySchema

func (s schemas) add(name string, t query.Type, isTime bool) {
	known := s[name]
	if known == nil {
		s[strings.Clone(name)] = &search.PropertySchema{Name: strings.Clone(name), Type: t, Time: isTime}
		return
	}
	if known.Type != t {
		known.Type = query.String
	}
	known.Time = known.Time && isTime
}

func (s schemas) addResource(properties query.Properties) {
	for i := range properties {
		if p := &properties[i]; !query.Hidden(p.Name) {
			s.add(p.Name, p.Type, p.Type == query.String && query.IsTime(p.Leaves[0].Text))
		}
	}
}

func (s schemas) sorted() []search.PropertySchema {
	result := make([]search.PropertySchema, 0, len(s))
	for _, one := range s {
		result = append(result, *one)
	}
	slices.SortFunc(result, func(a, b search.PropertySchema) int { return cmp.Compare(a.Name, b.Name) })
	return result
}

// Schema implements search.Engine.
func (e *Engine) Schema(ctx context.Context, scope visibility.Scope, q *query.Query, now time.Time) (_ []search.PropertySchema, err error) {
	defer observe("schema", time.Now(), &err)
	found, err := answer(ctx, e, func(ctx context.Context, d *database) (schemas, error) { return d.schema(ctx, scope, q, now) })
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return found.sorted(), nil
}

func (d *database) schema(ctx context.Context, scope visibility.Scope, q *query.Query, now time.Time) (schemas, error) {
	all := schemas{}
	err := d.inquire(ctx, scope, q, now, func(v *view, i *inquiry) error {
		c, err := i.compile(ctx, v)
		if err != nil {
			return err
		}
		rest := c.selection
		if c.exact() {
			var whole []*cluster
			whole, rest = rest.withoutWhole()
			if err := v.addSchemas(ctx, all, idsOf(whole)); err != nil {
				return err
			}
		}
		if rest.empty() {
			return nil
		}
		return c.each(ctx, v, rest.condition, func(one *found) error {
			all.addResource(one.properties)
			return nil
		})
	})
	return all, err
}

// addSchemas adds the properties of whole clusters.
func (v *view) addSchemas(ctx context.Context, found schemas, clusters []int32) error {
	if len(clusters) == 0 {
		return nil
	}
	var name string
	var kind int16
	var isTime bool
	statement := "SELECT DISTINCT name, type, is_time FROM " + table("properties") + " WHERE cluster = ANY($1) AND NOT secret"
	return v.rows(ctx, statement, []any{clusters}, []any{&name, &kind, &isTime}, func() error {
		found.add(unescape(name), query.Type(kind), isTime)
		return nil
	})
}
