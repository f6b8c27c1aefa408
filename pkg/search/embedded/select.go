package embedded

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// selection is a set of rows in two forms. Each form is faster for some uses.
type selection struct {
	bitmap *roaring.Bitmap
	dense  dense
}

// reader answers one question from one state.
type reader struct {
	state *state
	ctx   context.Context
	now   time.Time
	// scope contains the rows in the scope of the caller.
	scope   *roaring.Bitmap
	scopeID uint64
	// scopeCost is the cost of reading all rows in the scope, or 0 if it is not known.
	scopeCost int
	// keys, times and frequent are the numbers of keys of maps, of times and of frequent terms of the fleet, if the query
	// has keywords.
	keys, times, frequent int
	// since is the start of the last turn of the question. ran is the length of its previous turns.
	since time.Time
	ran   time.Duration
	// borrowed contains the buffers that return to the pool when the reader is closed. free contains those sets of them
	// that are used again before.
	borrowed []*[]uint64
	free     []dense

	// budget is the budget of the request. keywords contains the keywords for which requests have paid.
	budget   *search.Budget
	keywords *lru.Cache
	// turns is nil for a caller that need not wait. endTurn ends the turn of a long question.
	turns   *turns
	caller  string
	endTurn func()
}

var densePool = sync.Pool{New: func() any { return new([]uint64) }}

// dense returns an empty set for rows or terms below a limit. It is valid until the reader is closed.
func (r *reader) dense(limit int) dense {
	words := (limit + 63) / 64
	if last := len(r.free) - 1; last >= 0 && cap(r.free[last]) >= words {
		d := r.free[last][:words]
		r.free = r.free[:last]
		clear(d)
		return d
	}
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
	d := r.dense(r.state.rows.len())
	b.WriteDenseTo(d)
	return d
}

const (
	// turn is the time that a question runs before others have their turn.
	turn = time.Millisecond
	// longTime is the time after which a question waits for the turn of its caller.
	longTime = 8 * time.Millisecond
)

// pause lets other goroutines run, so that short questions do not wait for long ones. When the question becomes a long
// one, it waits for its turn. It returns an error if the context has ended.
func (r *reader) pause() error {
	if took := time.Since(r.since); took > turn {
		r.ran += took
		runtime.Gosched()
		r.since = time.Now()
	}
	if r.turns == nil || r.endTurn != nil || r.ran < longTime {
		return r.ctx.Err()
	}
	var err error
	r.endTurn, err = r.turns.take(r.ctx, r.caller)
	r.since = time.Now()
	return err
}

// close ends the turn, and returns memory to the pool.
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

// union collects the union of many sets of rows.
type union struct {
	reader *reader
	// first is the only set so far. From the second set on, rows contains the union.
	first       postings
	rows, spare dense
}

func (u *union) add(s *postings) {
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

// begin allocates rows.
func (u *union) begin() {
	if u.rows == nil {
		u.rows, u.spare = u.reader.dense(u.reader.state.rows.len()), u.reader.dense(u.reader.state.rows.len())
		u.rows.addRows(&u.first, u.spare)
	}
}

// bitmap returns the union, which must not be changed. Nothing can be added afterwards.
func (u *union) bitmap() *roaring.Bitmap {
	if u.rows == nil {
		return u.first.asBitmap()
	}
	u.reader.free = append(u.reader.free, u.spare)
	return u.reader.bitmap(u.rows)
}

// bitmap returns the rows of a set, which must not be used afterwards.
func (r *reader) bitmap(rows dense) *roaring.Bitmap {
	r.free = append(r.free, rows)
	return roaring.FromDense(rows, true)
}

// matches returns the rows in the scope that match a query. They must not be changed.
func (r *reader) matches(q *query.Query) (*roaring.Bitmap, error) {
	if err := r.spend(r.costOfQuery(q)); err != nil {
		return nil, err
	}
	found := r.scope
	for i := range q.Filters {
		wanted, unwanted, err := r.filter(&q.Filters[i])
		if err != nil {
			return nil, err
		}
		if wanted != nil {
			found = roaring.And(found, wanted)
		}
		if unwanted != nil {
			found = roaring.And(found, found)
			found.AndNot(unwanted)
		}
	}
	for i, word := range q.Keywords {
		if word == "" || slices.Contains(q.Keywords[:i], word) {
			continue
		}
		if err := r.pause(); err != nil {
			return nil, err
		}
		rows, err := r.keyword(word, found)
		if err != nil {
			return nil, err
		}
		found = roaring.And(found, rows)
	}
	return found, nil
}

// each calls visit with each row of a set, and pauses meanwhile.
func (r *reader) each(rows *roaring.Bitmap, visit func(row uint32)) error {
	visited := 0
	var err error
	rows.Iterate(func(row uint32) bool {
		visit(row)
		if visited++; visited%checkEvery == 0 {
			err = r.pause()
		}
		return err == nil
	})
	return err
}

// filter returns the rows for which one of the comparisons other than != holds, or nil if there are none, and the rows
// that a != comparison excludes, or nil.
func (r *reader) filter(f *query.Filter) (wanted, unwanted *roaring.Bitmap, err error) {
	yes, no := union{reader: r}, union{reader: r}
	isWanted, isUnwanted := false, false
	var unread []comparisonTo
	p := r.inScope(f.Property)
	for i := range f.Comparisons {
		if err := r.pause(); err != nil {
			return nil, nil, err
		}
		c := comparisonTo{&f.Comparisons[i], &yes}
		if c.Op == query.NotEqual {
			c.to, isUnwanted = &no, true
		} else {
			isWanted = true
		}
		if f.Property == query.Cluster {
			r.matchClusters(c)
		} else if p != nil {
			done, err := r.match(p, c)
			if err != nil {
				return nil, nil, err
			}
			if !done {
				unread = append(unread, c)
			}
		}
	}
	if len(unread) > 0 {
		if err := r.readForFilter(p, unread); err != nil {
			return nil, nil, err
		}
	}
	if isWanted {
		wanted = yes.bitmap()
	}
	if isUnwanted {
		unwanted = no.bitmap()
	}
	return wanted, unwanted, nil
}

// comparisonTo is a comparison, and the union for the rows for which it holds.
type comparisonTo struct {
	*query.Comparison
	to *union
}

// matchClusters adds the rows of the clusters whose name a comparison matches.
func (r *reader) matchClusters(c comparisonTo) {
	for _, cluster := range r.state.clusters {
		if c.MatchesLeaf(query.Cluster, query.String, query.Leaf{Text: cluster.name}, r.now) {
			c.to.add(&cluster.rows)
		}
	}
}

// readForFilter adds the rows of the scope for which comparisons on a property hold. It reads their terms.
func (r *reader) readForFilter(p *property, comparisons []comparisonTo) error {
	for i := range comparisons {
		comparisons[i].to.begin()
	}
	return r.each(r.scope, func(row uint32) {
		for _, t := range r.state.termsOf(r.state.rows.at(row).data) {
			f := r.state.fields.get(t.info().field())
			if t.info().empty() || r.state.properties.get(f.property) != p {
				continue
			}
			leaf := query.Leaf{Key: f.key, Type: t.info().leaf(), Text: t.text}
			for _, c := range comparisons {
				if !c.to.rows.has(row) && c.MatchesLeaf(p.name, f.kind, leaf, r.now) {
					c.to.rows.set(row)
				}
			}
		}
	})
}
