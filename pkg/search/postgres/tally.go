package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// errUnknownClass is the error for a row whose class the snapshot should have had.
var errUnknownClass = errors.New("a resource has a class that does not exist")

// tally is how many resources match.
type tally struct {
	count int
	// clusters in the order of their names, those without matches left out.
	clusters []clusterTally
}

type clusterTally struct {
	*cluster
	count int
	// classes that have matches.
	classes []*class
	// rids of the matches, in order, where they were compared one by one.
	rids []int64
}

func (t *tally) clusterIDs() []int32 {
	result := make([]int32, len(t.clusters))
	for i := range t.clusters {
		result[i] = t.clusters[i].id
	}
	return result
}

// counted makes a tally of counts by class.
func (s *selection) counted(counts map[*class]int) *tally {
	t := &tally{}
	add := func(one *clusterTally, class *class) {
		if n := counts[class]; n > 0 {
			one.count += n
			one.classes = append(one.classes, class)
		}
	}
	named := s.named
	for i := range s.clusters {
		one := clusterTally{cluster: s.clusters[i].cluster}
		for _, class := range s.clusters[i].classes {
			add(&one, class)
		}
		for len(named) > 0 && named[0].cluster == one.cluster {
			add(&one, named[0].class)
			named = named[1:]
		}
		if one.count > 0 {
			t.count += one.count
			t.clusters = append(t.clusters, one)
		}
	}
	return t
}

// numbers are how many resources the classes of a selection have that are visible as a whole. The
// lock of the catalog must be held.
func (s *selection) numbers() map[*class]int {
	counts := make(map[*class]int, len(s.classes))
	for _, one := range s.classes {
		if one.n > 0 {
			counts[one] = int(one.n)
		}
	}
	return counts
}

// tally counts what fulfils a condition. Numbers are those of the classes.
func (c *condition) tally(ctx context.Context, v *view, numbers map[*class]int) (*tally, error) {
	if c.refine && !c.selection.empty() {
		return c.compareAll(ctx, v)
	}
	counts, err := c.byClass(ctx, v, numbers)
	if err != nil {
		return nil, err
	}
	return c.selection.counted(counts), nil
}

// byClass counts what fulfils a condition by class. Numbers are those of the classes; it may add to them.
func (c *condition) byClass(ctx context.Context, v *view, numbers map[*class]int) (map[*class]int, error) {
	s := c.selection
	b := c.builder()
	var where string
	switch {
	case s.empty():
		return nil, nil
	case c.refine:
		counts := map[*class]int{}
		err := c.each(ctx, v, s.condition, func(r *row) error {
			counts[r.class]++
			return nil
		})
		return counts, err
	case !c.exact():
		numbers = map[*class]int{}
		where = c.where(b, s.condition(b))
	case len(s.named) > 0:
		where = namesCondition(b, s.named)
	default:
		return numbers, nil
	}
	rows, err := v.tx.Query(ctx, "SELECT r.class, count(*) FROM "+v.engine.table("resources")+" r WHERE "+where+" GROUP BY r.class", b.args...)
	if err != nil {
		return nil, err
	}
	var id, n int64
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		class := v.engine.catalog.class(id)
		if class == nil {
			return errUnknownClass
		}
		numbers[class] = int(n)
		return nil
	})
	return numbers, err
}

func (c *condition) builder() *builder { return &builder{engine: c.engine, clusters: c.clusters} }

// row is a resource as read, valid until the next.
type row struct {
	class        *class
	rid, version int64
	uid, doc     string
	properties   query.Properties
}

// each calls for each resource that fulfils a condition and matches, in no order. The
// properties are decoded.
func (c *condition) each(ctx context.Context, v *view, classes func(*builder) string, call func(*row) error) error {
	b := c.builder()
	rows, err := v.tx.Query(ctx, "SELECT r.class, r.rid, r.version, r.uid, r.doc FROM "+v.engine.table("resources")+" r WHERE "+c.where(b, classes(b)), b.args...)
	if err != nil {
		return err
	}
	var one row
	var id int64
	read := 0
	_, err = pgx.ForEachRow(rows, []any{&id, &one.rid, &one.version, &one.uid, &one.doc}, func() error {
		read++
		if one.class == nil || one.class.id != id {
			if one.class = v.engine.catalog.class(id); one.class == nil {
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

// compareAll counts by comparing resources one by one.
func (c *condition) compareAll(ctx context.Context, v *view) (*tally, error) {
	byCluster := map[*cluster]*clusterTally{}
	t := &tally{}
	err := c.each(ctx, v, c.selection.condition, func(r *row) error {
		of := r.class.cluster
		one := byCluster[of]
		if one == nil {
			one = &clusterTally{cluster: of}
			byCluster[of] = one
		}
		one.count++
		one.rids = append(one.rids, r.rid)
		if len(one.classes) == 0 || one.classes[len(one.classes)-1] != r.class {
			one.classes = append(one.classes, r.class)
		}
		t.count++
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, one := range byCluster {
		slices.Sort(one.rids)
		slices.SortFunc(one.classes, func(a, b *class) int { return cmp.Compare(a.id, b.id) })
		one.classes = slices.Compact(one.classes)
		t.clusters = append(t.clusters, *one)
	}
	slices.SortFunc(t.clusters, func(a, b clusterTally) int { return compareClusters(a.cluster, b.cluster) })
	return t, nil
}

func compareClusters(a, b *cluster) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}
