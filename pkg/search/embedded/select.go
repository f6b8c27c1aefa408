package embedded

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// selection is a set of rows in the forms that are quick for one or the other use.
type selection struct {
	bitmap *roaring.Bitmap
	dense  dense
}

// reader answers one question from one state.
type reader struct {
	*state
	ctx context.Context
	now time.Time
	// scope has the rows that the caller may find.
	scope   *roaring.Bitmap
	scopeID uint64
	// since is when the question had its last turn.
	since time.Time
	// borrowed go back to the pool when the answer is complete.
	borrowed []*[]uint64

	// budget is what the request may still take; nil for what only looks something up. spent is what this
	// question has taken of it.
	budget *search.Budget
	spent  time.Duration
	// turns is nil for a caller who need not wait for one; endTurn ends the turn of a long question.
	turns   *turns
	caller  string
	endTurn func()
}

var densePool = sync.Pool{New: func() any { return new([]uint64) }}

// dense gives an empty set for rows or terms below a limit, which lasts as long as the reader.
func (r *reader) dense(limit int) dense {
	words := (limit + 63) / 64
	buffer := densePool.Get().(*[]uint64)
	if cap(*buffer) < words {
		*buffer = make([]uint64, words+words/8)
	}
	*buffer = (*buffer)[:words]
	clear(*buffer)
	r.borrowed = append(r.borrowed, buffer)
	return *buffer
}

func (r *reader) denseOf(b *roaring.Bitmap) dense {
	d := r.dense(r.rows.len())
	b.WriteDenseTo(d)
	return d
}

// turn is how long a question is answered before others have their turn.
const turn = time.Millisecond

// pause lets others run, so that short questions do not wait for long ones, and tells whether the
// caller has gone.
func (r *reader) pause() error {
	if now := time.Now(); now.Sub(r.since) > turn {
		if !r.since.IsZero() {
			runtime.Gosched()
			now = time.Now()
		}
		r.since = now
	}
	return r.ctx.Err()
}

// close gives back what the reader has borrowed.
func (r *reader) close() {
	if r.endTurn != nil {
		r.endTurn()
		r.endTurn = nil
	}
	for _, buffer := range r.borrowed {
		densePool.Put(buffer)
	}
	r.borrowed = nil
}

// union collects rows of many sets.
type union struct {
	reader *reader
	// first is the only set so far; then there are rows.
	first       rowset
	rows, spare dense
}

func (u *union) add(s *rowset) {
	if s.empty() {
		return
	}
	if u.rows == nil {
		if u.first.empty() {
			u.first = *s
			return
		}
		u.begin()
	}
	u.rows.addRows(s, u.spare)
}

// begin makes room for rows.
func (u *union) begin() {
	if u.rows == nil {
		u.rows, u.spare = u.reader.dense(u.reader.rows.len()), u.reader.dense(u.reader.rows.len())
		u.rows.addRows(&u.first, u.spare)
	}
}

// addTerms adds the rows of terms. Those of many are fetched together, so that the processor waits
// for all of them at once.
func (u *union) addTerms(terms []uint32) {
	var sets [64]rowset
	if len(terms) > 1 {
		u.begin()
	}
	for len(terms) > 0 {
		n := min(len(terms), len(sets))
		for i, number := range terms[:n] {
			sets[i] = u.reader.terms.at(number).rows
		}
		for i := range sets[:n] {
			u.add(&sets[i])
		}
		terms = terms[n:]
	}
}

// bitmap is the union, which must not be changed.
func (u *union) bitmap() *roaring.Bitmap {
	if u.rows == nil {
		return u.first.asBitmap()
	}
	return roaring.FromDense(u.rows, true)
}

// matches are the rows in the scope that match a query. They must not be changed.
func (r *reader) matches(q *query.Query) (*roaring.Bitmap, error) {
	c, err := r.conditions(q)
	if err != nil {
		return nil, err
	}
	return c.rows(r.scope), nil
}

// count is how many rows in the scope match a query. It makes no set of them where that is not needed.
func (r *reader) count(q *query.Query) (int, error) {
	c, err := r.conditions(q)
	if err != nil {
		return 0, err
	}
	if len(c.unwanted) > 1 {
		return int(c.rows(r.scope).GetCardinality()), nil
	}
	found := r.scope
	last := len(c.wanted) - 1
	for i, rows := range c.wanted {
		if i == last && len(c.unwanted) == 0 {
			return int(found.AndCardinality(rows)), nil
		}
		found = roaring.And(found, rows)
	}
	n := found.GetCardinality()
	for _, rows := range c.unwanted {
		n -= found.AndCardinality(rows)
	}
	return int(n), nil
}

// conditions are the rows that each part of a query wants, and those that it does not.
type conditions struct{ wanted, unwanted []*roaring.Bitmap }

// rows are those of a scope that the conditions leave.
func (c *conditions) rows(scope *roaring.Bitmap) *roaring.Bitmap {
	found := scope
	for _, rows := range c.wanted {
		found = roaring.And(found, rows)
	}
	for i, rows := range c.unwanted {
		if i == 0 {
			found = roaring.And(found, found)
		}
		found.AndNot(rows)
	}
	return found
}

func (r *reader) conditions(q *query.Query) (conditions, error) {
	var c conditions
	if err := r.spend(r.costOfQuery(q)); err != nil {
		return c, err
	}
	for i := range q.Filters {
		if err := r.pause(); err != nil {
			return c, err
		}
		wanted, unwanted, isWanted, err := r.filter(&q.Filters[i])
		if err != nil {
			return c, err
		}
		if isWanted {
			c.wanted = append(c.wanted, wanted)
		}
		if unwanted != nil {
			c.unwanted = append(c.unwanted, unwanted)
		}
	}
	for _, keyword := range q.Keywords {
		if err := r.pause(); err != nil {
			return c, err
		}
		if keyword != "" {
			rows, err := r.keyword(keyword)
			if err != nil {
				return c, err
			}
			c.wanted = append(c.wanted, rows)
		}
	}
	return c, nil
}

// filter gives the rows that one of the comparisons other than != holds for, and
// those that = holds for in one of the others; both may be nil.
func (r *reader) filter(f *query.Filter) (wanted, unwanted *roaring.Bitmap, isWanted bool, err error) {
	yes, no := union{reader: r}, union{reader: r}
	isUnwanted := false
	for i := range f.Comparisons {
		c := &f.Comparisons[i]
		if err := r.pause(); err != nil {
			return nil, nil, false, err
		}
		to := &yes
		if c.Op == query.NotEqual {
			to, isUnwanted = &no, true
		} else {
			isWanted = true
		}
		if f.Property == query.Cluster {
			r.matchClusters(c, to)
		} else {
			r.match(f.Property, c, to)
		}
	}
	if isWanted {
		wanted = yes.bitmap()
	}
	if isUnwanted {
		unwanted = no.bitmap()
	}
	return wanted, unwanted, isWanted, nil
}

// matchClusters adds the rows of the clusters for whose names a comparison holds.
func (r *reader) matchClusters(c *query.Comparison, to *union) {
	for _, cluster := range r.clusters {
		if c.MatchesLeaf(query.Cluster, query.String, query.Leaf{Text: cluster.name}, r.now) {
			to.add(&cluster.rows)
		}
	}
}

// match adds the rows of the terms of a property for which a comparison holds.
func (r *reader) match(name string, c *query.Comparison, to *union) {
	id, known := r.propertyNames[name]
	if !known {
		return
	}
	m := matcher{reader: r, property: r.properties.get(id), comparison: c, to: to, pairs: strings.Contains(c.Text, "=")}
	if !m.pairs && len(m.property.keys) > 0 {
		m.keys()
	}
	switch c.Op {
	case query.Less, query.LessOrEqual, query.Greater, query.GreaterOrEqual:
		m.inOrder()
	default:
		m.equal()
	}
}
