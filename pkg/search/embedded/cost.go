package embedded

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Costs are in nanoseconds. Each step takes its cost from the budget of the request before it runs. The cost depends
// only on the request, on the resources in the scope, and on sizes of the whole fleet that coarse rounds, so that a caller
// cannot find out by refusals which resources outside of the scope match. It is at most the cost of reading all resources
// in the scope: if the index finds more terms than that, the step reads them instead.
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
	// propertyCost is the cost of finding out whether some rows have a property, and schemaCost if they do.
	propertyCost, schemaCost = 200, 2_000
	// itemCost and itemBytes are the cost and the memory of an item in a response. valueCost and valueBytes are those
	// of a value. Encoding, compressing and sending cause most of the cost of an item.
	itemCost, itemBytes   = 4_000, 176
	valueCost, valueBytes = 150, 96
	// scanCost is the cost of comparing a term with a pattern and adding its rows. pairCost is this cost for the leaf
	// of a map, whose key and value are joined first. indexCost is the cost of a lookup of trigrams.
	scanCost, pairCost, indexCost = 300, 500, 20_000
	// sharedCost is the cost of a keyword of two letters, which unites the postings of all trigrams
	// that begin with these letters. letterCost is this cost for a single letter, for each term.
	sharedCost, letterCost = 2_000_000, 10
	// candidateCost is the cost for each term of a property if the index selects the terms to compare, matchCost if all are
	// compared, and timeCost if they are times. sharedTermCost is the cost of a keyword for each term of the fleet.
	candidateCost, matchCost, timeCost, sharedTermCost = 40, 200, 10, 10
	// readCost is the cost of comparing all values of a usual row with a keyword, and readByteCost that of a byte of a
	// longer one.
	readCost, readByteCost = 2_000, 30
)

// spend takes a cost from the budget of the request.
func (r *reader) spend(cost int) error { return r.budget.Spend(time.Duration(cost)) }

// hold takes memory from the budget of the request.
func (r *reader) hold(bytes int) error { return r.budget.Hold(bytes) }

// newBudget returns the budget of a request with one search.
func (e *Engine) newBudget() *search.Budget { return search.NewBudget(e.maxCost, search.DefaultBytes) }

// terms returns the number of terms of a property, excluding empty terms.
func (p *property) terms() int { return p.counts[0] + p.counts[1] + p.counts[2] + p.counts[3] }

// coarse rounds a size of the fleet up to a power of two. Small sizes are equal.
func coarse(size int) int {
	const least = 1 << 10
	return max(least, rounded(size))
}

// rounded rounds a size up to a power of two.
func rounded(size int) int { return 1 << bits.Len(uint(max(1, size)-1)) }

// costOfQuery returns the cost of a query. A query that is too expensive is rejected before any part of it is
// evaluated.
func (r *reader) costOfQuery(q *query.Query) int {
	rows := coarse(r.state.rows.len()) / 2
	cost := 0
	for i := range q.Filters {
		f := &q.Filters[i]
		p := r.inScope(f.Property)
		cost += rows
		for j := range f.Comparisons {
			cost += r.costOfComparison(f.Property, p, &f.Comparisons[j])
		}
	}
	if len(q.Keywords) > 0 {
		r.countNames()
	}
	for i, text := range q.Keywords {
		switch _, paid := r.kept(text, 0); {
		case text == "" || slices.Contains(q.Keywords[:i], text):
		case paid:
			cost += rows
		default:
			cost += r.costOfReading(r.scope, rows+r.costOfKeyword(text))
			r.keep(text, 0, nil)
		}
	}
	return cost
}

// inScope returns a property, or nil if no resource in the scope has it.
func (r *reader) inScope(name string) *property {
	id, known := r.state.propertyNames[name]
	if !known {
		return nil
	}
	p := r.state.properties.get(id)
	for i := range p.variants {
		if r.someInScope(&p.variants[i]) {
			return p
		}
	}
	return nil
}

// someInScope reports whether one of the rows is in the scope.
func (r *reader) someInScope(rows *postings) bool {
	return rows.asBitmap().Intersects(r.scope)
}

// costOfComparison returns the cost of a comparison on a property, which is nil if no resource in the scope has it.
func (r *reader) costOfComparison(name string, p *property, c *query.Comparison) int {
	parts := partCost * len(c.Parts)
	if name == query.Cluster {
		return comparisonCost + coarse(len(r.state.clusters))*(matchCost+parts)
	}
	if p == nil {
		return comparisonCost
	}
	all, cost := coarse(p.terms()), 0
	if !strings.Contains(c.Text, "=") && r.someInScope(&p.variants[query.Map]) {
		cost = all * candidateCost
		if !exactText(name, c) {
			cost += coarse(len(p.keys)) * (matchCost + parts)
		}
	}
	switch {
	case c.Age > 0 || c.Time != nil && c.Op != query.Equal && c.Op != query.NotEqual:
		cost += coarse(r.state.rows.len())*2 + all*timeCost
	case foldsKind(name, c):
		cost += all * (matchCost + parts)
	case c.Op != query.Equal && c.Op != query.NotEqual:
		cost += all * candidateCost
	case !c.Wildcard():
	case c.Parts[0] != "" || len(longestPart(c)) >= 3:
		cost += all * (candidateCost + parts)
	default:
		cost += all * (matchCost + parts)
	}
	return comparisonCost + r.costOfReading(r.scope, cost)
}

// countNames counts the keys, times and frequent terms that keywords are compared with.
func (r *reader) countNames() {
	r.keys, r.times, r.frequent = 0, 0, 0
	for _, id := range r.state.propertyNames {
		p := r.state.properties.get(id)
		r.keys += len(p.keys)
		if !p.hidden {
			r.times += p.counts[orderTime>>4]
		}
		if n := p.terms(); n <= frequentTerms {
			r.frequent += n
		}
	}
}

// costOfKeyword returns the cost of a keyword.
func (r *reader) costOfKeyword(keyword string) int {
	cost := comparisonCost + coarse(len(r.state.clusters)+len(r.state.propertyNames)+r.keys)*keyCost
	if couldBeInTime(keyword) {
		cost += coarse(r.times) * 2 * timeCost
	}
	terms, compared := coarse(r.state.terms.len()), min(coarse(r.frequent), frequentCompared)*scanCost
	switch len(keyword) {
	case 1:
		return cost + sharedCost + compared + terms*(letterCost+termCost/4)
	case 2:
		return cost + sharedCost + compared + terms*termCost/4
	default:
		return cost + indexCost + terms*sharedTermCost
	}
}

// costOfTerms returns the cost of a walk through the terms of a property, and reports whether it may be less than that of
// reading rows instead. The walk usually ends early, but a caller can select rows that have the last terms. Then it takes
// at most four times its cost.
func costOfTerms(p *property, reading int) (int, bool) {
	all := coarse(p.terms()) * termCost
	return min(all, reading), all <= 4*reading
}

// costOfReading returns the cost of comparing all values of rows, up to a limit.
func (r *reader) costOfReading(rows *roaring.Bitmap, limit int) int {
	if int(rows.GetCardinality())*readCost >= limit {
		return limit
	}
	if rows == r.scope && r.scopeCost > 0 {
		return min(r.scopeCost, limit)
	}
	cost := 0
	rows.Iterate(func(row uint32) bool {
		cost += max(readCost, len(r.state.rows.at(row).data)*readByteCost)
		return cost < limit || rows == r.scope
	})
	if rows == r.scope {
		r.scopeCost = cost
	}
	return min(cost, limit)
}
