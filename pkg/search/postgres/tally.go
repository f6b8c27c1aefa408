package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// errUnknownClass is the error for a row whose class is not in the snapshot.
var errUnknownClass = errors.New("a resource has a class that does not exist")

// tally contains the number of matches and their locations.
type tally struct {
	count int
	// clusters contains the clusters with matches, in the order of their names.
	clusters []clusterTally
}

// clusterTally is the tally of one cluster.
type clusterTally struct {
	*cluster
	count int
	// rids contains the matches in order if listed is true.
	rids   []int64
	listed bool
	// classes contains the classes with matches. If whole is true, it contains only those of Secrets, and any other
	// class may have matches.
	classes []*class
	whole   bool
}

func (t *tally) clusterIDs() []int32 {
	result := make([]int32, len(t.clusters))
	for i := range t.clusters {
		result[i] = t.clusters[i].id
	}
	return result
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

// gathering collects a tally class by class.
type gathering struct {
	clusters map[*cluster]*clusterTally
	// counts receives the values of classes with their counts, if it is not nil.
	counts *values
}

func newGathering(counts *values) gathering {
	return gathering{clusters: map[*cluster]*clusterTally{}, counts: counts}
}

func (g gathering) of(one *cluster) *clusterTally {
	found := g.clusters[one]
	if found == nil {
		found = &clusterTally{cluster: one}
		g.clusters[one] = found
	}
	return found
}

func (g gathering) add(class *class, count int) {
	if count > 0 {
		if g.counts != nil {
			g.counts.addClass(class, count)
		}
		one := g.of(class.cluster)
		one.count += count
		one.classes = append(one.classes, class)
	}
}

func (g gathering) list(class *class, rid int64) {
	if g.counts != nil {
		g.counts.addClass(class, 1)
	}
	one := g.of(class.cluster)
	one.listed = true
	one.count++
	one.rids = append(one.rids, rid)
}

func (g gathering) tally() *tally {
	t := &tally{clusters: make([]clusterTally, 0, len(g.clusters))}
	for _, one := range g.clusters {
		slices.Sort(one.rids)
		t.count += one.count
		t.clusters = append(t.clusters, *one)
	}
	slices.SortFunc(t.clusters, func(a, b clusterTally) int { return compareClusters(a.cluster, b.cluster) })
	return t
}

func compareClusters(a, b *cluster) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}

// tally counts the matches. numbers contains the counts of the classes. list is true if the caller
// also requires the matches. by receives the values of the matches' classes, if it is not nil.
func (c *condition) tally(ctx context.Context, v *view, numbers []int, list bool, by *values) (*tally, error) {
	g := newGathering(by)
	s := c.selection
	switch {
	case s.empty():
		return &tally{}, nil
	case c.refine:
		err := c.each(ctx, v, s.condition, func(r *row) error {
			g.list(r.class, r.rid)
			return nil
		})
		return g.tally(), err
	case c.exact():
		if by != nil {
			by.addClasses(s.classes, numbers)
		}
		counted := gathering{clusters: g.clusters}
		for i, class := range s.classes {
			counted.add(class, numbers[i])
		}
		if len(s.named) == 0 {
			return g.tally(), nil
		}
		err := c.count(ctx, v, func(b *builder) string { return namesCondition(b, s.named) }, g.add)
		return g.tally(), err
	}
	rest := s
	if by == nil {
		var err error
		if rest, err = c.countWhole(ctx, v, g); err != nil {
			return nil, err
		}
	}
	var err error
	switch {
	case rest.empty():
		return g.tally(), nil
	case list && len(g.clusters) == 0 && (c.selective() || s.few(numbers)):
		err = c.list(ctx, v, rest, g)
	default:
		err = c.count(ctx, v, rest.condition, g.add)
	}
	return g.tally(), err
}

// selective reports whether there is a positive condition, so that few matches are likely.
func (c *condition) selective() bool {
	return len(c.keywords) > 0 || slices.ContainsFunc(c.filters, func(f filterCondition) bool { return f.filtered })
}

// count counts the resources that meet the condition, by class.
func (c *condition) count(ctx context.Context, v *view, classes func(*builder) string, add func(*class, int)) error {
	b := c.builder()
	where := c.where(b, classes(b))
	rows, err := v.tx.Query(ctx, "SELECT r.class, count(*) FROM "+table("resources")+" r WHERE "+where+" GROUP BY r.class", b.args...)
	if err != nil {
		return err
	}
	var id, n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		class := v.class(id)
		if class == nil {
			return errUnknownClass
		}
		add(class, int(n))
		return nil
	})
	return err
}

// list returns the keys of the resources that meet the condition. If the condition only concerns
// names, the index of names answers it, and list excludes classes outside of the selection.
func (c *condition) list(ctx context.Context, v *view, s *selection, g gathering) error {
	b := c.builder()
	var classes string
	named := c.namesOnly() && len(s.named) == 0 && len(s.classes) > fewClasses
	if named {
		classes = "true"
	} else {
		classes = s.condition(b)
	}
	rows, err := v.tx.Query(ctx, "SELECT r.class, r.rid FROM "+table("resources")+" r WHERE "+c.where(b, classes), b.args...)
	if err != nil {
		return err
	}
	members := map[*class]bool{}
	var id, rid int64
	var of *class
	_, err = pgx.ForEachRow(rows, []any{&id, &rid}, func() error {
		if of == nil || of.id != id {
			if of = v.class(id); of == nil {
				return errUnknownClass
			}
		}
		if named {
			member, known := members[of]
			if !known {
				member = s.has(of)
				members[of] = member
			}
			if !member {
				return nil
			}
		}
		g.list(of, rid)
		return nil
	})
	return err
}

// namesOnly reports whether the condition only concerns names.
func (c *condition) namesOnly() bool {
	return len(c.keywords) == 0 && len(c.filters) == 1 && c.filters[0].wanted.namesOnly() && c.filters[0].unwanted.empty()
}

func (l *leafCondition) namesOnly() bool {
	return len(l.names) > 0 && len(l.terms)+len(l.created) == 0
}

// countWhole takes the counts of whole clusters from the tables of values and tokens, if the
// condition is a single value or token. It returns the remaining selection.
func (c *condition) countWhole(ctx context.Context, v *view, g gathering) (*selection, error) {
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
	ids := make([]int32, len(whole))
	byID := make(map[int32]*cluster, len(whole))
	for i, one := range whole {
		ids[i] = one.id
		byID[one.id] = one
	}
	rows, err := v.tx.Query(ctx, "SELECT cluster, "+term+", n FROM "+table(counts)+
		" WHERE "+term+" = ANY("+b.arg(terms)+") AND cluster = ANY("+b.arg(ids)+") AND NOT secret"+of, b.args...)
	if err != nil {
		return nil, err
	}
	numbers := map[*cluster]int{}
	seen := map[int64]struct{}{}
	var id int32
	var found, n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &found, &n}, func() error {
		seen[found] = struct{}{}
		numbers[byID[id]] += int(n)
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
			of := g.of(one)
			of.count, of.whole = n, true
		}
	}
	return rest, nil
}
