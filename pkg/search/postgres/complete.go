package postgres

import (
	"context"
	"fmt"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// values collects the values of a property.
type values struct {
	property, prefix string
	counts           map[string]int
	// seen contains the values of the current resource.
	seen map[string]bool
}

func newValues(property, prefix string) *values {
	return &values{property: property, prefix: query.Fold(prefix), counts: map[string]int{}, seen: map[string]bool{}}
}

// add adds a value that the given number of resources have.
func (v *values) add(text string, count int) {
	if n := len(v.prefix); len(text) < n || query.Fold(text[:n]) != v.prefix {
		return
	}
	v.counts[text] += count
}

// addResource adds the values of a resource. It adds each value once.
func (v *values) addResource(properties query.Properties) {
	if p := properties.Get(v.property); p != nil && v.property != query.Cluster {
		v.addProperty(p, 1)
	}
}

// addProperty adds the values of a property that the given number of resources have.
func (v *values) addProperty(p *query.Property, resources int) {
	clear(v.seen)
	for i := range p.Leaves {
		leaf := p.Leaves[i]
		text := query.LeafText(p.Type, leaf)
		if !v.seen[text] {
			v.seen[text] = true
			v.add(text, resources)
		}
	}
}

// ofClasses reports whether classes determine the values.
func (v *values) ofClasses() bool { return v.property == query.Cluster || inShape(v.property) }

// addClass adds the values of a class, which the given number of its resources have.
func (v *values) addClass(class *class, resources int) {
	if resources <= 0 {
		return
	}
	if v.property == query.Cluster {
		v.add(class.cluster.name, resources)
	} else if p := class.shape.properties.Get(v.property); p != nil {
		v.addProperty(p, resources)
	}
}

// addClasses adds the values of classes. The number of shapes is smaller than the number of classes. The
// property cluster is not part of the shape.
func (v *values) addClasses(classes []*class, numbers []int) {
	byShape := map[*shape]int{}
	for i, class := range classes {
		if v.property == query.Cluster {
			v.addClass(class, numbers[i])
		} else {
			byShape[class.shape] += numbers[i]
		}
	}
	for shape, n := range byShape {
		if p := shape.properties.Get(v.property); p != nil && n > 0 {
			v.addProperty(p, n)
		}
	}
}

// Complete implements search.Engine.
func (e *Engine) Complete(ctx context.Context, scope visibility.Scope, request *search.CompletionRequest) (_ *search.Completion, err error) {
	defer observe("complete", time.Now(), &err)
	gathered, err := answer(ctx, e, func(ctx context.Context, d *database) (*values, error) { return d.complete(ctx, scope, request) })
	if err != nil {
		return nil, fmt.Errorf("values of property %s: %w", request.Property, err)
	}
	return gathered.completion(request.Limit), nil
}

func (d *database) complete(ctx context.Context, scope visibility.Scope, request *search.CompletionRequest) (*values, error) {
	gathered := newValues(request.Property, request.Prefix)
	err := d.inquire(ctx, scope, &request.Query, request.Now, func(v *view, i *inquiry) error {
		c, err := i.compile(ctx, v)
		if err != nil {
			return err
		}
		if gathered.ofClasses() {
			_, err = c.tally(ctx, v, i.numbers, false, gathered)
			return err
		}
		return c.completeResources(ctx, v, gathered, request.Limit)
	})
	return gathered, err
}

func (v *values) completion(limit int) *search.Completion {
	var values []search.ValueCount
	for text, count := range v.counts {
		values = append(values, search.ValueCount{Value: text, Count: count})
	}
	return search.NewCompletion(values, limit)
}

// completeResources takes the values of whole clusters from the table of values, and the values of
// other clusters from resources.
func (c *condition) completeResources(ctx context.Context, v *view, gathered *values, limit int) error {
	if c.selection.empty() {
		return nil
	}
	if gathered.property == query.Name && !c.refine {
		return c.completeNames(ctx, v, gathered, limit)
	}
	rest := c.selection
	if c.exact() && !query.Hidden(gathered.property) && gathered.property != query.Created {
		var whole []*cluster
		whole, rest = rest.withoutWhole()
		if err := c.addFacets(ctx, v, gathered, idsOf(whole), limit); err != nil {
			return err
		}
	}
	if rest.empty() {
		return nil
	}
	return c.each(ctx, v, rest.condition, func(one *found) error {
		gathered.addResource(one.properties)
		return nil
	})
}

// addFacets adds the values of whole clusters. Pairs of maps are neither numbers nor times, so the database orders
// and limits them.
func (c *condition) addFacets(ctx context.Context, v *view, gathered *values, clusters []int32, limit int) error {
	if len(clusters) == 0 {
		return nil
	}
	property := v.engine.hash.property(gathered.property)
	var pairs, others bool
	err := v.tx.QueryRow(ctx, "SELECT coalesce(bool_or(type = $2), false), coalesce(bool_or(type <> $2), false) FROM "+
		table("properties")+" WHERE property = $1", property, int16(query.Map)).Scan(&pairs, &others)
	if err != nil {
		return err
	}
	if others {
		if err := c.addGrouped(ctx, v, gathered, "min(value)", "NOT pair", property, clusters, -1); err != nil {
			return err
		}
	}
	if pairs {
		return c.addGrouped(ctx, v, gathered, "min(key) || '=' || min(value)", "pair", property, clusters, limit)
	}
	return nil
}

func (c *condition) addGrouped(ctx context.Context, v *view, gathered *values, text, where string, property int64, clusters []int32, limit int) error {
	b := c.builder()
	where += " AND NOT secret AND property = " + b.arg(property)
	if len(clusters) < c.clusters {
		where += " AND cluster = ANY(" + b.arg(clusters) + "::integer[])"
	}
	statement := "SELECT text, n FROM (SELECT " + text + " AS text, sum(n)::bigint AS n FROM " + table("facets") +
		" WHERE " + where + " GROUP BY leaf) grouped"
	if gathered.prefix != "" {
		statement += " WHERE lower(text) LIKE " + b.arg(likeText.Replace(escape(gathered.prefix))+"%")
	}
	if limit >= 0 {
		statement += " ORDER BY text LIMIT " + b.arg(int64(limit)+1)
	}
	var value string
	var n int
	return v.rows(ctx, statement, b.args, []any{&value, &n}, func() error {
		gathered.add(unescape(value), n)
		return nil
	})
}
