package embedded

import (
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Estimates in about nanoseconds, in addition to rowCost and termCost.
const (
	// questionCost is that of any question.
	questionCost = 10_000
	// comparisonCost is that of a comparison that finds its terms by their order, and partCost that of each
	// piece of a pattern.
	comparisonCost = 2_000
	partCost       = 5
	// keyCost is that of looking at a key of a map, and edgeCost that of an edge.
	keyCost  = 40
	edgeCost = 30
	// itemCost and itemBytes are those of an item of an answer, valueCost and valueBytes those of a value.
	// What an item costs is mostly to encode, to compress and to send it.
	itemCost, itemBytes   = 4_000, 176
	valueCost, valueBytes = 150, 96
	// scanCost is that of comparing a term with a pattern and adding its rows, pairCost that for the leaf of a map,
	// which is put together first, and indexCost that of asking the trigrams.
	scanCost, pairCost, indexCost = 300, 500, 20_000
	// sharedCost is that of two letters of a keyword, of which all trigrams are put together.
	sharedCost = 2_000_000

	// longCost is from what cost on a question waits for its turn.
	longCost = 8 * time.Millisecond
)

// spend takes a cost from the budget of the request. A question that becomes a long one waits for its turn.
func (r *reader) spend(cost int) error {
	if r.budget == nil {
		return nil
	}
	if err := r.budget.Spend(time.Duration(cost)); err != nil {
		return err
	}
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

// newBudget is what a request may take that makes one search.
func (e *Engine) newBudget() *search.Budget { return search.NewBudget(e.maxCost, search.DefaultBytes) }

// termsOf is how many terms a property has.
func termsOf(p *property) int {
	n := 0
	for _, count := range p.counts {
		n += count
	}
	return n
}

// between is how many terms are from one place to before another.
func (o ordered) between(p, q position) int {
	if !p.before(q) {
		return 0
	}
	if p.chunk == q.chunk {
		return q.at - p.at
	}
	n := len(o[p.chunk].terms) - p.at + q.at
	for chunk := p.chunk + 1; chunk < q.chunk; chunk++ {
		n += len(o[chunk].terms)
	}
	return n
}

// costOfQuery is at most what it costs to find what matches a query, but for the terms of keys that contain a
// keyword. A query that is too expensive is refused before any of it is evaluated.
func (r *reader) costOfQuery(q *query.Query) int {
	cost := 0
	for i := range q.Filters {
		f := &q.Filters[i]
		cost += r.costOfRows()
		for j := range f.Comparisons {
			cost += r.costOf(f.Property, &f.Comparisons[j])
		}
	}
	for _, keyword := range q.Keywords {
		if keyword != "" {
			cost += r.costOfKeyword(keyword)
		}
	}
	return cost
}

// costOf is at most what it costs to find the terms of a property that a comparison holds for.
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
	all := termsOf(p)
	cost := comparisonCost
	if len(p.keys) > 0 && !strings.Contains(c.Text, "=") {
		// Of the keys that match, all terms are added.
		cost += len(p.keys)*each + all*termCost/4
	}
	switch c.Op {
	case query.Less, query.LessOrEqual, query.Greater, query.GreaterOrEqual:
		if p.timesByRow() && (c.Time != nil || c.Age > 0) {
			return cost + r.rows.len()*2
		}
		return cost + all*termCost
	}
	switch {
	case name == query.Kind && c.Text != "" && 'a' <= c.Text[0] && c.Text[0] <= 'z':
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
		// Candidates are those of all properties.
		return cost + numbers + indexCost + r.candidates(longest)*each
	}
	return cost + all*each
}

// costOfRows is what it costs to put together the rows of a filter, and to leave them.
func (r *reader) costOfRows() int { return r.rows.len() / 2 }

// candidates is at most how many terms trigrams find for a piece of at least three bytes, and costs
// next to nothing.
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

// costOfKeyword is at most what it costs to find the terms that contain a keyword, but for those of keys that do.
func (r *reader) costOfKeyword(keyword string) int {
	cost := comparisonCost + r.costOfRows() + len(r.clusters)*keyCost
	inTime := couldBeInTime(keyword)
	for _, id := range r.propertyNames {
		p := r.properties.get(id)
		cost += keyCost + len(p.keys)*keyCost
		if n := p.counts[orderTime>>4]; inTime && n > 0 && !p.hidden {
			if p.timesByRow() && !spansT(keyword) {
				cost += r.rows.len() * 2
			} else {
				cost += n * termCost
			}
		}
	}
	switch {
	case len(keyword) == 1:
		return cost + r.terms.len()*scanCost
	case len(keyword) == 2:
		return cost + sharedCost + r.terms.len()*termCost/4
	}
	return cost + indexCost + r.candidates(keyword)*scanCost
}
