package embedded

import (
	"context"
	"slices"
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Schema implements search.Engine.
func (e *Engine) Schema(ctx context.Context, scope visibility.Scope, q *query.Query, now time.Time) ([]search.PropertySchema, error) {
	defer observe("schema", time.Now())
	r, err := e.read(ctx, scope, now)
	if err != nil {
		return nil, err
	}
	defer r.close()
	found, err := r.matches(q)
	if err != nil {
		return nil, err
	}
	if found.IsEmpty() {
		return nil, nil
	}
	if err := r.spend(coarse(len(r.state.propertyNames)) * propertyCost); err != nil {
		return nil, err
	}
	rows := selection{bitmap: found, dense: r.denseOf(found)}
	var schemas []search.PropertySchema
	visited := 0
	for _, id := range r.state.propertyNames {
		if visited++; visited%checkEvery == 0 && r.pause() != nil {
			return nil, ctx.Err()
		}
		if p := r.state.properties.get(id); !p.hidden {
			if schema, any := p.schema(&rows); any {
				schemas = append(schemas, schema)
			}
		}
	}
	// The properties of other resources cost little, and must not show in the budget.
	if err := r.spend(len(schemas) * schemaCost); err != nil {
		return nil, err
	}
	slices.SortFunc(schemas, func(a, b search.PropertySchema) int { return strings.Compare(a.Name, b.Name) })
	return schemas, nil
}

// schema describes the values of the property in rows. It returns false if no row has the property.
func (p *property) schema(rows *selection) (search.PropertySchema, bool) {
	schema := search.PropertySchema{Name: p.name}
	some, times := false, true
	for variant := range p.variants {
		if p.variants[variant].countIn(rows) == 0 {
			continue
		}
		t := query.Type(variant)
		if variant == variantTime {
			t = query.String
		} else {
			times = false
		}
		if some && schema.Type != t {
			schema.Type = query.String
		} else {
			schema.Type = t
		}
		some = true
	}
	schema.Time = some && times
	return schema, some
}
