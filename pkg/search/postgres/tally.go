package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// errUnknownClass is the error for a row whose class is not in the snapshot.
var errUnknownClass = errors.New("a resource has a class that does not exist")

// tally contains the number of matches and their locations, which are collected class by class.
type tally struct {
	count int
	// clusters contains the clusters with matches, in the order of their IDs.
	clusters []*clusterTally
	byID     map[int32]*clusterTally
	// nodes contains all matches in order if listed is true.
	nodes  []node
	listed bool
	// values receives the values of classes with their counts, if it is not nil.
	values *values
}

// clusterTally is the tally of one cluster.
type clusterTally struct {
	*cluster
	count int
	// classes contains the classes with matches. If whole is true, it contains only those of Secrets, and any other
	// class may have matches. If the matches are listed, it is empty.
	classes []*class
	whole   bool
}

func (t *tally) clusterIDs() []int32 {
	return mapped(t.clusters, func(one *clusterTally) int32 { return one.id })
}

// addTo adds matches to a cluster.
func (t *tally) addTo(one *cluster, count int) *clusterTally {
	known := t.byID[one.id]
	if known == nil {
		known = &clusterTally{cluster: one}
		t.byID[one.id] = known
		t.clusters = append(t.clusters, known)
	}
	known.count += count
	t.count += count
	return known
}

// add adds matches of a class.
func (t *tally) add(class *class, count int) {
	if count <= 0 {
		return
	}
	if t.values != nil {
		t.values.addClass(class, count)
	}
	one := t.addTo(class.cluster, count)
	one.classes = append(one.classes, class)
}

// list adds a match.
func (t *tally) list(class *class, rid int64) {
	if t.values != nil {
		t.values.addClass(class, 1)
	}
	t.listed = true
	t.nodes = append(t.nodes, node{t.addTo(class.cluster, 1).id, rid})
}

func (t *tally) sort() {
	slices.SortFunc(t.clusters, func(a, b *clusterTally) int { return cmp.Compare(a.id, b.id) })
	slices.SortFunc(t.nodes, compareNodes)
}

// numbers returns the counts of the selected classes, in their order. The caller must hold the lock of the catalog.
func (s *selection) numbers() []int {
	numbers := make([]int, len(s.classes))
	for i, one := range s.classes {
		numbers[i] = int(one.n)
	}
	return numbers
}

// fewResources is the number of resources up to which all matches are listed.
const fewResources = 20_000

// few reports whether a selection contains few resources.
func (s *selection) few(numbers []int) bool {
	total := 0
	for _, n := range numbers {
		total += n
	}
	return len(s.classes) <= fewClasses && len(s.named) == 0 && total <= fewResources
}

// tally counts the matches. numbers contains the counts of the classes. list is true if the caller
// also requires the matches. by receives the values of the matches' classes, if it is not nil.
func (c *condition) tally(ctx context.Context, v *view, numbers []int, list bool, by *values) (*tally, error) {
	t := &tally{byID: map[int32]*clusterTally{}, values: by}
	err := c.tallyInto(ctx, v, t, numbers, list)
	t.sort()
	return t, err
}

func (c *condition) tallyInto(ctx context.Context, v *view, t *tally, numbers []int, list bool) error {
	s := c.selection
	switch {
	case s.empty():
		return nil
	case c.refine:
		return c.each(ctx, v, s.condition, func(one *found) error {
			t.list(one.class, one.rid)
			return nil
		})
	case c.exact():
		by := t.values
		if by != nil {
			by.addClasses(s.classes, numbers)
		}
		t.values = nil
		for i, class := range s.classes {
			t.add(class, numbers[i])
		}
		t.values = by
		if len(s.named) == 0 {
			return nil
		}
		return c.count(ctx, v, func(b *builder) string { return namesCondition(b, s.named) }, t.add)
	}
	rest := s
	if t.values == nil {
		var err error
		if rest, err = c.countWhole(ctx, v, t); err != nil {
			return err
		}
	}
	switch {
	case rest.empty():
		return nil
	case list && len(t.clusters) == 0 && (c.selective() || s.few(numbers)):
		return c.list(ctx, v, rest, t)
	}
	return c.count(ctx, v, rest.condition, t.add)
}

// selective reports whether there is a positive condition, so that few matches are likely.
func (c *condition) selective() bool {
	return len(c.keywords) > 0 || slices.ContainsFunc(c.filters, func(f filterCondition) bool { return f.filtered })
}

// count counts the resources that meet the condition, by class.
func (c *condition) count(ctx context.Context, v *view, classes func(*builder) string, add func(*class, int)) error {
	b := c.builder()
	var id int64
	var n int
	statement := "SELECT r.class, count(*) FROM " + table("resources") + " r WHERE " + c.where(b, classes(b)) + " GROUP BY r.class"
	return v.rows(ctx, statement, b.args, []any{&id, &n}, v.ofClass(&id, func(of *class) { add(of, n) }))
}

// list lists the resources that meet the condition.
func (c *condition) list(ctx context.Context, v *view, s *selection, t *tally) error {
	classes := s.condition
	if c.namesOnly() && len(s.classes) > fewClasses {
		// The index of names contains the class.
		classes = s.indexed
	}
	b := c.builder()
	var id, rid int64
	statement := "SELECT r.class, r.rid FROM " + table("resources") + " r WHERE " + c.where(b, classes(b))
	return v.rows(ctx, statement, b.args, []any{&id, &rid}, v.ofClass(&id, func(of *class) { t.list(of, rid) }))
}

// namesOnly reports whether the condition only concerns names.
func (c *condition) namesOnly() bool {
	return len(c.keywords) == 0 && len(c.filters) == 1 && c.filters[0].wanted.namesOnly() && c.filters[0].unwanted.empty()
}

func (l *leafCondition) namesOnly() bool {
	return len(l.terms) == 0 && len(l.columns) > 0 && !slices.ContainsFunc(l.columns, func(c columnCondition) bool { return c.column != nameColumn })
}

// countWhole takes the counts of whole clusters from the tables of values and tokens, if the
// condition is a single value or token. It returns the remaining selection.
func (c *condition) countWhole(ctx context.Context, v *view, t *tally) (*selection, error) {
	s := c.selection
	counts, of, term, terms := "", "", "", []int64(nil)
	b := c.builder()
	switch {
	case s.filtered:
		return s, nil
	case len(c.keywords) == 1 && len(c.filters) == 0:
		if k := &c.keywords[0]; k.pattern == "" && len(k.clusters) == 0 && len(k.terms) == 1 && len(k.terms[0]) == 1 {
			counts, term, terms = "tokens", "term", k.terms[0]
		}
	case len(c.keywords) == 0 && len(c.filters) == 1:
		if f := &c.filters[0]; f.pair && f.unwanted.empty() {
			counts, term, terms = "facets", "leaf", f.wanted.terms
			of = " AND property = " + b.arg(b.engine.hash.property(c.rest.Filters[0].Property))
		}
	}
	if counts == "" {
		return s, nil
	}
	whole, rest := s.withoutWhole()
	byID := make(map[int32]*cluster, len(whole))
	for _, one := range whole {
		byID[one.id] = one
	}
	numbers := map[*cluster]int{}
	seen := map[int64]struct{}{}
	var id int32
	var matching int64
	var n int
	statement := "SELECT cluster, " + term + ", n FROM " + table(counts) +
		" WHERE " + term + " = ANY(" + b.arg(terms) + ") AND cluster = ANY(" + b.arg(idsOf(whole)) + ") AND NOT secret" + of
	err := v.rows(ctx, statement, b.args, []any{&id, &matching, &n}, func() error {
		seen[matching] = struct{}{}
		numbers[byID[id]] += n
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(seen) > 1 {
		// A resource may have several of the values, but must count once.
		return s, nil
	}
	for one, n := range numbers {
		if n > 0 {
			t.addTo(one, n).whole = true
		}
	}
	return rest, nil
}
