package embedded

import (
	"math"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Costs are estimates in nanoseconds. See also rowCost and termCost.
//
// There are two estimates of each step. The bound is taken from the budget of the request. It depends only on the
// request, on the resources in the scope, and on sizes of the whole fleet that coarse rounds, so that a caller cannot
// find out by refusals which resources outside of the scope match. The cost uses all that is known, and
// decides how the step is executed and whether the question waits for its turn.
const (
	// questionCost is the minimum cost of a question.
	questionCost = 10_000
	// comparisonCost is the cost of a comparison that finds its terms by their order. partCost is
	// the cost of each part of a pattern.
	comparisonCost = 2_000
	partCost       = 5
	// keyCost is the cost of reading a key of a map. edgeCost is the cost of reading an edge.
	keyCost  = 40
	edgeCost = 30
	// propertyCost is the cost of finding out whether some rows have a property.
	propertyCost = 200
	// itemCost and itemBytes are the cost and the memory of an item in a response. valueCost and
	// valueBytes are those of a value. Encoding, compressing and sending cause most of the cost of
	// an item.
	itemCost, itemBytes   = 4_000, 176
	valueCost, valueBytes = 150, 96
	// scanCost is the cost of comparing a term with a pattern and adding its rows. pairCost is this
	// cost for the leaf of a map, whose key and value are joined first. indexCost is the cost of a
	// lookup of trigrams.
	scanCost, pairCost, indexCost = 300, 500, 20_000
	// sharedCost is the cost of a keyword of two letters, which unites the postings of all trigrams
	// that begin with these letters. letterCost is this cost for a single letter, for each term.
	sharedCost, letterCost = 2_000_000, 10
	// frequentFrom is the cost of a keyword from which on its frequent terms are added first.
	frequentFrom = 5_000_000
	// candidateCost is the bound for each term of a property if the index selects the terms to compare, matchCost if all are
	// compared, and timeCost if they are times. sharedTermCost is the bound of a keyword for each term of the fleet.
	candidateCost, matchCost, timeCost, sharedTermCost = 40, 200, 10, 10
	// readCost is the cost of comparing all values of a usual row with a keyword, and readByteCost that of a byte of a
	// longer one.
	readCost, readByteCost = 2_000, 30

	// longCost is the cost from which on a question waits for its turn.
	longCost = 8 * time.Millisecond
)

// spend takes a cost from the budget of the request, and works.
func (r *reader) spend(cost int) error {
	if err := r.charge(cost); err != nil {
		return err
	}
	return r.work(cost)
}

// charge takes a bound from the budget of the request.
func (r *reader) charge(bound int) error {
	if r.budget == nil {
		return nil
	}
	return r.budget.Spend(time.Duration(bound))
}

// work adds a cost to that of the question. When the question becomes a long one, it waits for its turn.
func (r *reader) work(cost int) error {
	r.spent += time.Duration(cost)
	if r.turns == nil || r.endTurn != nil || r.spent < longCost {
		return nil
	}
	var err error
	r.endTurn, err = r.turns.take(r.ctx, r.caller)
	return err
}

// hold takes memory from the budget of the request.
func (r *reader) hold(bytes int) error {
	if r.budget == nil {
		return nil
	}
	return r.budget.Hold(bytes)
}

// newBudget returns the budget of a request with one search.
func (e *Engine) newBudget() *search.Budget { return search.NewBudget(e.maxCost, search.DefaultBytes) }

// terms returns the number of terms of a property, excluding empty terms.
func (p *property) terms() int { return p.counts[0] + p.counts[1] + p.counts[2] + p.counts[3] }

// between returns the number of terms between two positions.
func (o ordered) between(p, q position) int {
	if !p.before(q) {
		return 0
	}
	if p.chunk == q.chunk {
		return q.at - p.at
	}
	n := len(o[p.chunk]) - p.at + q.at
	for chunk := p.chunk + 1; chunk < q.chunk; chunk++ {
		n += len(o[chunk])
	}
	return n
}

// coarse rounds a size of the fleet up to a power of two. Small sizes are equal.
func coarse(size int) int {
	const least = 1 << 10
	return max(least, rounded(size))
}

// rounded rounds a size up to a power of two.
func rounded(size int) int { return 1 << bits.Len(uint(max(1, size)-1)) }

// boundOfQuery returns the bound of a query. A query that is too expensive is rejected before any part of it is
// evaluated.
func (r *reader) boundOfQuery(q *query.Query) int {
	rows := coarse(r.rows.len()) / 2
	bound := 0
	for i := range q.Filters {
		f := &q.Filters[i]
		p := r.inScope(f.Property)
		bound += rows
		for j := range f.Comparisons {
			bound += r.boundOf(f.Property, p, &f.Comparisons[j])
		}
	}
	for _, text := range q.Keywords {
		if text != "" {
			bound += r.boundOfKeyword(text)
		}
	}
	return bound
}

// inScope returns a property, or nil if no resource in the scope has it.
func (r *reader) inScope(name string) *property {
	id, known := r.propertyNames[name]
	if !known {
		return nil
	}
	p := r.properties.get(id)
	for i := range p.variants {
		if r.someInScope(&p.variants[i]) {
			return p
		}
	}
	return nil
}

// someInScope reports whether one of the rows is in the scope. Often, the first row of the scope is one of them.
func (r *reader) someInScope(rows *postings) bool {
	switch {
	case r.scope.IsEmpty() || rows.empty():
		return false
	case rows.contains(r.scope.Minimum()):
		return true
	case rows.many != nil && rows.many.bitmap != nil:
		return rows.many.bitmap.AndCardinality(r.scope) > 0
	}
	some := false
	rows.each(func(row uint32) bool {
		some = r.scope.Contains(row)
		return !some
	})
	return some
}

// boundOf returns the bound of a comparison on a property, which is nil if no resource in the scope has it.
func (r *reader) boundOf(name string, p *property, c *query.Comparison) int {
	parts := partCost * len(c.Parts)
	if name == query.Cluster {
		return comparisonCost + coarse(len(r.clusters))*(matchCost+parts)
	}
	if p == nil {
		return comparisonCost
	}
	all, bound := coarse(p.terms()), 0
	if !strings.Contains(c.Text, "=") && r.someInScope(&p.variants[query.Map]) {
		bound = all * candidateCost
		if !exactText(name, c) {
			bound += coarse(len(p.keys)) * (matchCost + parts)
		}
	}
	switch {
	case c.Age > 0 || c.Time != nil && c.Op != query.Equal && c.Op != query.NotEqual:
		bound += coarse(r.rows.len())*2 + all*timeCost
	case foldsKind(name, c):
		bound += all * (matchCost + parts)
	case c.Op != query.Equal && c.Op != query.NotEqual:
		bound += all * candidateCost
	case !c.Wildcard():
	case c.Parts[0] != "" || len(longestPart(c)) >= 3:
		bound += all * (candidateCost + parts)
	default:
		bound += all * (matchCost + parts)
	}
	if bound == 0 {
		return comparisonCost
	}
	return comparisonCost + r.costOfReadingScope(bound)
}

// boundOfKeyword returns the bound of a keyword.
func (r *reader) boundOfKeyword(keyword string) int {
	sizes := r.sizes()
	bound := comparisonCost + coarse(r.rows.len())/2 + coarse(len(r.clusters)+len(r.propertyNames)+sizes.keys)*keyCost + coarse(sizes.frequent)*termCost
	if couldBeInTime(keyword) {
		bound += coarse(sizes.times) * 2 * timeCost
	}
	terms := coarse(r.terms.len())
	switch len(keyword) {
	case 1:
		bound += sharedCost + terms*(letterCost+termCost/4)
	case 2:
		bound += sharedCost + terms*termCost/4
	default:
		bound += indexCost + terms*sharedTermCost
	}
	return r.costOfReadingScope(bound)
}

// costOfReadingScope returns the cost of comparing all values of the scope, up to a limit.
func (r *reader) costOfReadingScope(limit int) int {
	if int(r.scope.GetCardinality())*readCost >= limit {
		return limit
	}
	if r.scopeCost == 0 {
		r.scopeCost = r.costOfReadingAll(r.scope, math.MaxInt)
	}
	return min(r.scopeCost, limit)
}

// costOfReadingAll returns the cost of comparing all values of rows, up to a limit.
func (r *reader) costOfReadingAll(rows *roaring.Bitmap, limit int) int {
	if int(rows.GetCardinality())*readCost >= limit {
		return limit
	}
	cost := 0
	rows.Iterate(func(row uint32) bool {
		cost += r.costOfReading(row)
		return cost < limit
	})
	return min(cost, limit)
}

// costOfQuery returns the cost of a query.
func (r *reader) costOfQuery(q *query.Query) int {
	cost := 0
	for i := range q.Filters {
		f := &q.Filters[i]
		cost += r.costOfRows()
		for j := range f.Comparisons {
			cost += r.costOfReadingScope(r.costOf(f.Property, &f.Comparisons[j]))
		}
	}
	for _, text := range q.Keywords {
		if text != "" {
			cost += r.costOfReadingScope(r.costOfIndex(text))
		}
	}
	return cost
}

// costOf returns the cost of a comparison on a property if the index finds its terms.
func (r *reader) costOf(name string, c *query.Comparison) int {
	each := scanCost + partCost*len(c.Parts)
	if name == query.Cluster {
		return comparisonCost + len(r.clusters)*each
	}
	id, known := r.propertyNames[name]
	if !known {
		return comparisonCost
	}
	p := r.properties.get(id)
	if len(p.keys) > 0 {
		each += pairCost - scanCost
	}
	all := p.terms()
	cost := comparisonCost
	if len(p.keys) > 0 && !strings.Contains(c.Text, "=") {
		// All terms of the matching keys are added.
		cost += all * termCost / 4
		if !exactText(name, c) {
			cost += len(p.keys) * each
		}
	}
	switch c.Op {
	case query.Less, query.LessOrEqual, query.Greater, query.GreaterOrEqual:
		if p.timesByRow() && (c.Time != nil || c.Age > 0) {
			return cost + r.rows.len()*2
		}
		return cost + all*termCost
	}
	switch {
	case foldsKind(name, c):
		return cost + all*each
	case c.Age > 0:
		if p.timesByRow() {
			return cost + r.rows.len()*2
		}
		return cost + all*termCost
	case !c.Wildcard():
		return cost
	}
	numbers := p.counts[orderNum>>4] * each
	if first := c.Parts[0]; first != "" {
		end := p.order.end()
		if after, ok := successor(first); ok {
			end = r.seek(p.order, textKey(after))
		}
		return cost + numbers + p.order.between(r.seek(p.order, textKey(first)), end)*each
	}
	if longest, indexed := patternPiece(p, c); indexed {
		// The candidates are terms of all properties.
		return cost + numbers + indexCost + r.candidates(longest)*each
	}
	return cost + all*each
}

// costOfRows returns the cost of uniting the rows of a filter and intersecting them with other
// rows.
func (r *reader) costOfRows() int { return r.rows.len() / 2 }

// candidates returns an upper bound of the number of terms that trigrams find for a part of at
// least three bytes.
func (s *state) candidates(piece string) int {
	if at := strings.LastIndexByte(piece, '='); at > indexedTail {
		piece = piece[at-indexedTail:]
	}
	if len(piece) < 3 {
		return s.terms.len()
	}
	least := s.terms.len()
	for i := range len(piece) - 2 {
		trigram := (symbols[piece[i]]<<symbolBits|symbols[piece[i+1]])<<symbolBits | symbols[piece[i+2]]
		set := s.trigrams.get(trigram)
		least = min(least, set.count())
	}
	return least
}

// costOfReading returns the cost of comparing all values of a row with a keyword.
func (s *state) costOfReading(row uint32) int {
	if at := s.rows.at(row); at != nil {
		return max(readCost, len(at.data)*readByteCost)
	}
	return readCost
}

// costOfIndex returns the cost of a keyword if the index finds it.
func (r *reader) costOfIndex(keyword string) int {
	sizes := r.sizes()
	cost := comparisonCost + r.costOfRows() + (len(r.clusters)+len(r.propertyNames)+sizes.keys)*keyCost + sizes.frequent*termCost
	if couldBeInTime(keyword) {
		if spansT(keyword) {
			cost += sizes.times * termCost
		} else {
			cost += sizes.timesByRow*r.rows.len()*2 + sizes.otherTimes*termCost
		}
	}
	switch {
	case len(keyword) == 1:
		return cost + sharedCost + r.terms.len()*(letterCost+termCost/4)
	case len(keyword) == 2:
		return cost + sharedCost + r.terms.len()*termCost/4
	}
	return cost + indexCost + r.candidates(keyword)*scanCost
}

// dictionarySizes are sums over all properties. They are computed once for each state.
type dictionarySizes struct {
	once sync.Once
	// keys is the number of keys of maps. frequent is the number of terms that addFrequent compares.
	keys, frequent int
	// times is the number of terms that are times. otherTimes are those of properties whose times are not stored by
	// row, and timesByRow is the number of the other properties.
	times, otherTimes, timesByRow int
}

func (r *reader) sizes() *dictionarySizes {
	z := r.dictionary.sizes
	z.once.Do(func() {
		for _, id := range r.propertyNames {
			p := r.properties.get(id)
			z.keys += len(p.keys)
			z.frequent += min(p.terms(), frequentTerms)
			n := p.counts[orderTime>>4]
			if n == 0 || p.hidden {
				continue
			}
			if z.times += n; p.timesByRow() {
				z.timesByRow++
			} else {
				z.otherTimes += n
			}
		}
	})
	return z
}
