package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// values gathers the values of a property.
type values struct {
	property, prefix string
	counts           map[string]int
	// seen are the values of one resource.
	seen map[string]bool
	// notNumber and notTime are true once there was a value that is none.
	notNumber, notTime bool
}

func newValues(property, prefix string) *values {
	return &values{property: property, prefix: lowerASCII(prefix), counts: map[string]int{}, seen: map[string]bool{}}
}

// add counts a value of several resources.
func (v *values) add(text string, count int) {
	if !hasPrefix(text, v.prefix) {
		return
	}
	if !v.notNumber {
		_, number := query.ParseNumber(text)
		v.notNumber = !number
	}
	v.notTime = v.notTime || !query.IsTime(text)
	v.counts[text] += count
}

// hasPrefix tells whether a text begins with a prefix that is in lower case, without case.
func hasPrefix(text, prefix string) bool {
	return len(text) >= len(prefix) && lowerASCII(text[:len(prefix)]) == prefix
}

// addResource counts the values of a resource, each once.
func (v *values) addResource(properties query.Properties) {
	if p := properties.Get(v.property); p != nil && v.property != query.Cluster {
		v.addProperty(p, 1)
	}
}

// addProperty counts a property that several resources have.
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

// Complete implements search.Engine.
func (e *Engine) Complete(ctx context.Context, scope visibility.Scope, request *search.CompletionRequest) (_ *search.Completion, err error) {
	defer observe("complete", time.Now(), &err)
	gathered := newValues(request.Property, request.Prefix)
	err = e.inquire(ctx, scope, &request.Query, request.Now, func(v *view, i *inquiry) error {
		c, err := i.compile(ctx, v)
		if err != nil {
			return err
		}
		if request.Property == query.Cluster || inShape(request.Property) {
			return c.completeClasses(ctx, v, i, gathered)
		}
		return c.completeResources(ctx, v, gathered, request.Limit)
	})
	if err != nil {
		return nil, fmt.Errorf("values of property %s: %w", request.Property, err)
	}
	return gathered.completion(request.Limit), nil
}

func (v *values) completion(limit int) *search.Completion {
	completion := &search.Completion{}
	if len(v.counts) == 0 {
		return completion
	}
	texts := make([]string, 0, len(v.counts))
	for text := range v.counts {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, compareValues)
	completion.Numbers, completion.Times = !v.notNumber, !v.notTime
	if completion.Numbers || completion.Times {
		completion.Min, completion.Max = texts[0], texts[len(texts)-1]
	}
	if limit >= 0 && limit < len(texts) {
		texts, completion.More = texts[:limit], true
	}
	for _, text := range texts {
		completion.Values = append(completion.Values, search.ValueCount{Value: text, Count: v.counts[text]})
	}
	return completion
}

// compareValues orders numbers by number and before others, and others by bytes.
func compareValues(a, b string) int {
	x, isX := query.ParseNumber(a)
	y, isY := query.ParseNumber(b)
	switch {
	case isX && isY:
		return cmp.Or(cmp.Compare(x, y), strings.Compare(a, b))
	case isX:
		return -1
	case isY:
		return 1
	}
	return strings.Compare(a, b)
}

// completeClasses takes the values from the classes, and only their numbers from resources.
func (c *condition) completeClasses(ctx context.Context, v *view, i *inquiry, gathered *values) error {
	counts, err := c.byClass(ctx, v, i.numbers)
	if err != nil {
		return err
	}
	for class, n := range counts {
		if n <= 0 {
			continue
		}
		if gathered.property == query.Cluster {
			gathered.add(class.cluster.name, n)
		} else if p := class.shape.properties.Get(gathered.property); p != nil {
			gathered.addProperty(p, n)
		}
	}
	return nil
}

// completeResources takes values from the table of values for clusters that the query is about
// as a whole, and for others from their resources.
func (c *condition) completeResources(ctx context.Context, v *view, gathered *values, limit int) error {
	if c.selection.empty() {
		return nil
	}
	names := gathered.property == query.Name && !c.refine
	if names {
		return c.completeNames(ctx, v, gathered, limit)
	}
	rest := c.selection
	if c.exact() && !query.Hidden(gathered.property) && gathered.property != query.Created {
		var whole []int32
		whole, rest = rest.withoutWhole()
		if err := v.addFacets(ctx, gathered, whole); err != nil {
			return err
		}
	}
	if rest.empty() {
		return nil
	}
	return c.each(ctx, v, rest.condition, func(r *row) error {
		gathered.addResource(r.properties)
		return nil
	})
}

// withoutWhole separates the clusters of which everything but Secrets is selected.
func (s *selection) withoutWhole() ([]int32, *selection) {
	var whole []int32
	rest := &selection{epoch: s.epoch, filtered: s.filtered, named: s.named, names: s.names}
	for _, of := range s.clusters {
		if of.whole {
			whole = append(whole, of.id)
			of.whole = false
			of.classes = slices.DeleteFunc(slices.Clone(of.classes), func(one *class) bool { return one.id > 0 })
			if len(of.classes) == 0 && !slices.ContainsFunc(s.named, func(one namedClass) bool { return one.cluster == of.cluster }) {
				continue
			}
		}
		rest.clusters = append(rest.clusters, of)
		rest.classes = append(rest.classes, of.classes...)
	}
	return whole, rest
}

// addFacets counts the values of whole clusters.
func (v *view) addFacets(ctx context.Context, gathered *values, clusters []int32) error {
	if len(clusters) == 0 {
		return nil
	}
	rows, err := v.tx.Query(ctx, "SELECT pair, key, value, sum(n)::bigint FROM "+v.engine.table("facets")+
		" WHERE cluster = ANY($1) AND property = $2 AND NOT secret GROUP BY pair, key, value",
		clusters, v.engine.hash.property(gathered.property))
	if err != nil {
		return err
	}
	var pair bool
	var key, value string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&pair, &key, &value, &n}, func() error {
		t := query.String
		if pair {
			t = query.Map
		}
		gathered.add(query.LeafText(t, query.Leaf{Key: unescape(key), Text: unescape(value)}), n)
		return nil
	})
	return err
}

// completeNames has the database count names, in their order and only as many as are wanted. Names that
// are no plain texts are read.
func (c *condition) completeNames(ctx context.Context, v *view, gathered *values, limit int) error {
	err := c.each(ctx, v, func(b *builder) string { return c.selection.condition(b) + " AND r.name_key IS NOT NULL" }, func(r *row) error {
		gathered.addResource(r.properties)
		return nil
	})
	if err != nil {
		return err
	}
	b := c.builder()
	where := c.where(b, c.selection.condition(b)) + " AND r.name_key IS NULL AND r.name IS NOT NULL"
	if gathered.prefix != "" {
		where += " AND lower(r.name COLLATE \"C\") LIKE " + b.arg(likeText.Replace(escape(gathered.prefix))+"%")
	}
	statement := "SELECT r.name, count(*) FROM " + v.engine.table("resources") + " r WHERE " + where + " GROUP BY r.name"
	if limit >= 0 {
		// Once more than the limit are there, no more are needed: they are in order.
		statement += " ORDER BY r.name LIMIT " + b.arg(limit+1)
	}
	rows, err := v.tx.Query(ctx, statement, b.args...)
	if err != nil {
		return err
	}
	var name string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
		gathered.add(unescape(name), n)
		return nil
	})
	return err
}
