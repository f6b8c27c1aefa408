package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// mostValues is how many values of a property are compared at most, and mostTerms how
	// many of them may match; beyond, resources are compared one by one.
	mostValues = 20_000
	mostTerms  = 2_000
)

// builder makes statements. What callers have sent becomes an argument, never text.
type builder struct {
	engine *Engine
	// clusters is how many there are.
	clusters int
	args     []any
}

// arg is the placeholder of an argument.
func (b *builder) arg(value any) string {
	b.args = append(b.args, value)
	return "$" + strconv.Itoa(len(b.args))
}

// condition is a query, compiled for one snapshot: conditions on resources, and
// whether they are all. If not, more resources fulfil them than match.
type condition struct {
	engine   *Engine
	clusters int
	// selection is what the classes have answered, and rest what is asked of resources.
	selection *selection
	rest      query.Query
	now       time.Time
	filters   []filterCondition
	keywords  []keywordCondition
	// refine is true if resources must be compared one by one.
	refine bool
}

// filterCondition holds when any of wanted does, or there is none, and none of unwanted.
type filterCondition struct {
	wanted, unwanted leafCondition
	filtered         bool
	// pair is true if all that is wanted is one pair of a map, as "key=value".
	pair bool
}

// leafCondition holds when any of its parts does.
type leafCondition struct {
	terms []int64
	// names are compared with the column name, created with that of the time.
	names   []textCondition
	created []timeCondition
}

type textCondition struct{ operator, value string }

type timeCondition struct {
	operator string
	micros   int64
}

func (l *leafCondition) empty() bool {
	return len(l.terms)+len(l.names)+len(l.created) == 0
}

// compile needs the snapshot, to look up which values there are.
func (v *view) compile(ctx context.Context, s *selection, rest query.Query, clusters int, now time.Time) (*condition, error) {
	c := &condition{engine: v.engine, clusters: clusters, selection: s, rest: rest, now: now}
	for _, keyword := range rest.Keywords {
		if !utf8.ValidString(keyword) {
			// A part of a letter is no text to PostgreSQL.
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
	wantedKnown := true
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
			wantedKnown = false
		}
	}
	if !wantedKnown {
		// The filter is left to the comparison one by one.
		return nil
	}
	inTable := f.Property != query.Name && f.Property != query.Created && !query.Hidden(f.Property)
	one.pair = inTable && len(f.Comparisons) == 1 && len(looked) == 0 && strings.Contains(f.Comparisons[0].Text, "=")
	c.filters = append(c.filters, one)
	return nil
}

// direct adds what a comparison finds without asking which values there are; false if it must be asked.
func (c *condition) direct(property string, comparison *query.Comparison, target *leafCondition) bool {
	h := c.engine.hash
	complete := true
	equality := comparison.Op == query.Equal || comparison.Op == query.NotEqual
	if equality && !comparison.Wildcard() && len(comparison.Parts) == 1 {
		text := comparison.Parts[0]
		target.terms = append(target.terms, h.leaf(property, false, "", text))
		if strings.Contains(comparison.Text, "=") {
			for i := range len(text) {
				if text[i] == '=' {
					target.terms = append(target.terms, h.leaf(property, true, text[:i], text[i+1:]))
				}
			}
		} else {
			target.terms = append(target.terms, h.pairKey(property, text))
		}
		if comparison.Number != nil {
			target.terms = append(target.terms, h.number(property, *comparison.Number))
		}
		complete = comparison.Age == 0
	} else {
		complete = false
	}
	switch {
	case property == query.Created && c.createdDirect(comparison, target):
		// Times that the column does not hold are among the values.
		return false
	case property == query.Name && !complete:
		c.nameDirect(comparison, target)
		return false
	}
	return complete
}

// createdDirect adds the condition on the column of times; false if times do not decide.
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
	// Between two microseconds: above the lower one is from the next on, and below is up to it.
	if !exact {
		switch operator {
		case ">=":
			operator = ">"
		case "<":
			operator = "<="
		}
	}
	target.created = append(target.created, timeCondition{operator: operator, micros: micros})
	return true
}

// nameDirect adds the condition on the column of names where texts decide.
func (c *condition) nameDirect(comparison *query.Comparison, target *leafCondition) {
	switch comparison.Op {
	case query.Equal, query.NotEqual:
		target.names = append(target.names, textCondition{operator: "LIKE", value: likePattern(comparison.Parts)})
	default:
		target.names = append(target.names, textCondition{operator: string(comparison.Op), value: escape(comparison.Text)})
	}
}

// lookUp compares the values that there are, and adds the terms of those that match; false if
// there are too many, or they are not known.
func (c *condition) lookUp(ctx context.Context, v *view, property string, comparisons []*query.Comparison, one *filterCondition) (bool, error) {
	if query.Hidden(property) {
		return false, nil
	}
	for _, comparison := range comparisons {
		switch property {
		case query.Created:
			// Only times have a column.
			if comparison.Age == 0 && (comparison.Time == nil || comparison.Number != nil || comparison.Op == query.Equal || comparison.Op == query.NotEqual) {
				return false, nil
			}
		case query.Name:
			// Names are compared as texts; numbers and times among them are not.
			if comparison.Number != nil || comparison.Time != nil || comparison.Age > 0 || !utf8.ValidString(comparison.Text) {
				return false, nil
			}
		}
	}
	values, err := v.values(ctx, c.selection, property, comparisons, c.clusters)
	if err != nil || len(values) == mostValues {
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
	return found <= mostTerms, nil
}

// isPattern tells whether a comparison is with the text of a pattern alone.
func isPattern(c *query.Comparison) bool {
	return c.Wildcard() && c.Number == nil && c.Age == 0 && utf8.ValidString(c.Text) && (c.Op == query.Equal || c.Op == query.NotEqual)
}

// value is a leaf that exists.
type value struct {
	term int64
	pair bool
	leaf query.Leaf
}

// values are those of a property in the clusters of a selection, at most mostValues. Patterns
// leave out in the database what does not match.
func (v *view) values(ctx context.Context, s *selection, property string, comparisons []*query.Comparison, clusters int) ([]value, error) {
	b := &builder{engine: v.engine}
	statement := "SELECT DISTINCT leaf, pair, key, value FROM " + v.engine.table("facets") + " WHERE property = " + b.arg(v.engine.hash.property(property))
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
	statement += " LIMIT " + strconv.Itoa(mostValues)
	rows, err := v.tx.Query(ctx, statement, b.args...)
	if err != nil {
		return nil, err
	}
	var values []value
	var one value
	_, err = pgx.ForEachRow(rows, []any{&one.term, &one.pair, &one.leaf.Key, &one.leaf.Text}, func() error {
		one.leaf.Key, one.leaf.Text = unescape(one.leaf.Key), unescape(one.leaf.Text)
		values = append(values, one)
		return nil
	})
	return values, err
}

// exact tells whether the classes alone answer the query.
func (c *condition) exact() bool {
	return len(c.filters) == 0 && len(c.keywords) == 0 && !c.refine
}

// where is the condition on resources r, those of the selection or of some classes of it.
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
	for _, name := range l.names {
		parts = append(parts, "r.name "+name.operator+" "+b.arg(name.value))
	}
	for _, created := range l.created {
		parts = append(parts, "r.created "+created.operator+" "+b.arg(created.micros))
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}
