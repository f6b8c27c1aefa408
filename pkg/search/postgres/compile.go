package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// maxValues bounds the values of a property that are compared. maxTerms bounds the number of
	// matching values. Beyond these bounds, resources are compared one by one.
	maxValues = 20_000
	maxTerms  = 2_000
)

// builder builds statements. Values from callers become arguments, never part of the text.
type builder struct {
	engine *Engine
	// clusters is the number of all clusters.
	clusters int
	args     []any
}

// arg adds an argument and returns its placeholder.
func (b *builder) arg(value any) string {
	b.args = append(b.args, value)
	return "$" + strconv.Itoa(len(b.args))
}

// condition is a query that is compiled for one snapshot. If refine is true, its conditions may
// select resources that do not match.
type condition struct {
	engine   *Engine
	clusters int
	// selection contains the matching classes. rest contains the conditions on resources.
	selection *selection
	rest      query.Query
	now       time.Time
	filters   []filterCondition
	keywords  []keywordCondition
	// refine is true if resources must be compared one by one.
	refine bool
}

// filterCondition is true if wanted is true or empty, and unwanted is false.
type filterCondition struct {
	wanted, unwanted leafCondition
	filtered         bool
	// pair is true if wanted is a single pair of a map, in the form "key=value".
	pair bool
}

// leafCondition is true if any of its parts is true.
type leafCondition struct {
	terms   []int64
	columns []columnCondition
}

// columnCondition compares one of the columns of a resource r.
type columnCondition struct {
	column, operator string
	value            any
}

const (
	nameColumn    = "r.name"
	createdColumn = "r.created"
)

func (l *leafCondition) empty() bool { return len(l.terms)+len(l.columns) == 0 }

// compile compiles a query. It reads the existing values from the snapshot.
func (v *view) compile(ctx context.Context, s *selection, rest query.Query, clusters int, now time.Time) (*condition, error) {
	c := &condition{engine: v.engine, clusters: clusters, selection: s, rest: rest, now: now}
	for _, keyword := range rest.Keywords {
		if !utf8.ValidString(keyword) {
			// PostgreSQL cannot store incomplete UTF-8.
			c.refine = true
			continue
		}
		if err := c.addKeyword(ctx, v, keyword); err != nil {
			return nil, err
		}
	}
	for i := range rest.Filters {
		if err := c.addFilter(ctx, v, &rest.Filters[i]); err != nil {
			return nil, fmt.Errorf("values of property %s: %w", rest.Filters[i].Property, err)
		}
	}
	return c, nil
}

func (c *condition) addFilter(ctx context.Context, v *view, f *query.Filter) error {
	var one filterCondition
	var looked []*query.Comparison
	for i := range f.Comparisons {
		comparison := &f.Comparisons[i]
		target := &one.unwanted
		if comparison.Op != query.NotEqual {
			one.filtered = true
			target = &one.wanted
		}
		if direct := c.direct(f.Property, comparison, target); !direct {
			looked = append(looked, comparison)
		}
	}
	if len(looked) > 0 {
		known, err := c.lookUp(ctx, v, f.Property, looked, &one)
		if err != nil {
			return err
		}
		if !known {
			c.refine = true
			return nil
		}
	}
	inTable := f.Property != query.Name && f.Property != query.Created && !query.Hidden(f.Property)
	one.pair = inTable && len(f.Comparisons) == 1 && len(looked) == 0 && strings.Contains(f.Comparisons[0].Text, "=")
	c.filters = append(c.filters, one)
	return nil
}

// maxPairs bounds the pairs of a map that a text may be. Each costs a hash of the whole text, so a text with more "="
// is compared with the existing values.
const maxPairs = 16

// direct adds the conditions for a comparison that do not depend on existing values. It returns
// false if existing values must be compared as well.
func (c *condition) direct(property string, comparison *query.Comparison, target *leafCondition) bool {
	h := c.engine.hash
	complete := false
	equality := comparison.Op == query.Equal || comparison.Op == query.NotEqual
	if equality && !comparison.Wildcard() && len(comparison.Parts) == 1 {
		text := comparison.Parts[0]
		target.terms = append(target.terms, h.leaf(property, false, "", text))
		pairs := strings.Count(text, "=")
		switch {
		case pairs == 0:
			target.terms = append(target.terms, h.pairKey(property, text))
		case pairs <= maxPairs:
			for i := range len(text) {
				if text[i] == '=' {
					target.terms = append(target.terms, h.leaf(property, true, text[:i], text[i+1:]))
				}
			}
		}
		if comparison.Number != nil {
			target.terms = append(target.terms, h.number(property, *comparison.Number))
		}
		complete = comparison.Age == 0 && pairs <= maxPairs
	}
	switch {
	case property == query.Created && c.createdDirect(comparison, target):
		// Times that the column cannot represent are stored as values.
		return false
	case property == query.Name && !complete:
		c.nameDirect(comparison, target)
		return false
	}
	return complete
}

// createdDirect adds a condition on the column created. It reports whether it added one.
func (c *condition) createdDirect(comparison *query.Comparison, target *leafCondition) bool {
	var at time.Time
	operator := string(comparison.Op)
	switch {
	case comparison.Age > 0:
		at = c.now.Add(-comparison.Age)
		if comparison.Op == query.Equal || comparison.Op == query.NotEqual {
			operator = ">"
		}
	case comparison.Number == nil && comparison.Time != nil && comparison.Op != query.Equal && comparison.Op != query.NotEqual:
		at = *comparison.Time
	default:
		return false
	}
	micros, exact := microseconds(at)
	// The time is between two microseconds: "later than the time" means "later than the lower
	// microsecond", and "earlier than the time" means "up to the lower microsecond".
	if !exact {
		switch operator {
		case ">=":
			operator = ">"
		case "<":
			operator = "<="
		}
	}
	target.columns = append(target.columns, columnCondition{createdColumn, operator, micros})
	return true
}

// nameDirect adds a condition on the column name.
func (c *condition) nameDirect(comparison *query.Comparison, target *leafCondition) {
	condition := columnCondition{nameColumn, string(comparison.Op), escape(comparison.Text)}
	if comparison.Op == query.Equal || comparison.Op == query.NotEqual {
		condition.operator, condition.value = "LIKE", likePattern(comparison.Parts)
	}
	target.columns = append(target.columns, condition)
}

// lookUp compares the existing values and adds the terms of the matching values. It returns false
// if there are too many values, or if the values are not stored.
func (c *condition) lookUp(ctx context.Context, v *view, property string, comparisons []*query.Comparison, one *filterCondition) (bool, error) {
	if query.Hidden(property) {
		return false, nil
	}
	for _, comparison := range comparisons {
		switch property {
		case query.Created:
			// The column contains only times.
			if comparison.Age == 0 && (comparison.Time == nil || comparison.Number != nil || comparison.Op == query.Equal || comparison.Op == query.NotEqual) {
				return false, nil
			}
		case query.Name:
			// The column compares names as texts, not as numbers or times.
			if comparison.Number != nil || comparison.Time != nil || comparison.Age > 0 || !utf8.ValidString(comparison.Text) {
				return false, nil
			}
		}
	}
	values, err := v.values(ctx, c.selection, property, comparisons, c.clusters)
	if err != nil || len(values) == maxValues {
		return false, err
	}
	found := 0
	for i := range values {
		value := &values[i]
		t := query.String
		if value.pair {
			t = query.Map
		}
		for _, comparison := range comparisons {
			if !comparison.MatchesLeaf(property, t, value.leaf, c.now) {
				continue
			}
			target := &one.wanted
			if comparison.Op == query.NotEqual {
				target = &one.unwanted
			}
			target.terms = append(target.terms, value.term)
			found++
		}
	}
	return found <= maxTerms, nil
}

// isPattern reports whether a comparison is a pattern of a plain text.
func isPattern(c *query.Comparison) bool {
	return c.Wildcard() && c.Number == nil && c.Age == 0 && utf8.ValidString(c.Text) && (c.Op == query.Equal || c.Op == query.NotEqual)
}

// value is an existing leaf.
type value struct {
	term int64
	pair bool
	leaf query.Leaf
}

// values returns the values of a property in the clusters of a selection, at most maxValues. If all
// comparisons are patterns, the database filters the values.
func (v *view) values(ctx context.Context, s *selection, property string, comparisons []*query.Comparison, clusters int) ([]value, error) {
	b := &builder{engine: v.engine}
	statement := "SELECT DISTINCT leaf, pair, key, value FROM " + table("facets") + " WHERE property = " + b.arg(v.engine.hash.property(property))
	if len(s.clusters) < clusters {
		statement += " AND cluster = ANY(" + b.arg(s.clusterIDs()) + "::integer[])"
	}
	if !slices.ContainsFunc(comparisons, func(c *query.Comparison) bool { return !isPattern(c) }) {
		var patterns []string
		for _, comparison := range comparisons {
			pattern := b.arg(likePattern(comparison.Parts))
			text := "key"
			if strings.Contains(comparison.Text, "=") {
				text = "key || '=' || value"
			}
			patterns = append(patterns, "CASE WHEN pair THEN "+text+" ELSE value END LIKE "+pattern)
		}
		statement += " AND (" + strings.Join(patterns, " OR ") + ")"
	}
	statement += " LIMIT " + strconv.Itoa(maxValues)
	var values []value
	var one value
	err := v.rows(ctx, statement, b.args, []any{&one.term, &one.pair, &one.leaf.Key, &one.leaf.Text}, func() error {
		one.leaf.Key, one.leaf.Text = unescape(one.leaf.Key), unescape(one.leaf.Text)
		values = append(values, one)
		return nil
	})
	return values, err
}

// exact reports whether classes alone determine the matching resources.
func (c *condition) exact() bool {
	return len(c.filters) == 0 && len(c.keywords) == 0 && !c.refine
}

// where returns the condition on resources r. The condition restricts a given condition on classes.
func (c *condition) where(b *builder, classes string) string {
	parts := []string{classes}
	for i := range c.filters {
		parts = append(parts, c.filters[i].where(b)...)
	}
	for i := range c.keywords {
		parts = append(parts, c.keywords[i].where(b))
	}
	return strings.Join(parts, " AND ")
}

func (f *filterCondition) where(b *builder) []string {
	var parts []string
	if f.filtered {
		if f.wanted.empty() {
			return []string{"false"}
		}
		parts = append(parts, f.wanted.where(b))
	}
	if !f.unwanted.empty() {
		parts = append(parts, "NOT coalesce("+f.unwanted.where(b)+", false)")
	}
	return parts
}

func (l *leafCondition) where(b *builder) string {
	var parts []string
	if len(l.terms) > 0 {
		parts = append(parts, "r.terms && "+b.arg(l.terms)+"::bigint[]")
	}
	for _, one := range l.columns {
		parts = append(parts, one.column+" "+one.operator+" "+b.arg(one.value))
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}
