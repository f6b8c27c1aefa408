package embedded

import (
	"strings"
	"time"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Costs are estimates in nanoseconds. See also rowCost and termCost.
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
	// readCost is the cost of comparing all values of a usual row with a keyword, and readByteCost that of a byte of a
	// longer one.
	readCost, readByteCost = 2_000, 30

	// longCost is the cost from which on a question waits for its turn.
	longCost = 8 * time.Millisecond
)

// spend takes a cost from the budget of the request. When a question becomes a long one, it waits
// for its turn.
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

// costOfQuery returns an upper bound of the cost of a query, except for the terms of keys that
// contain a keyword. A query that is too expensive is rejected before any part of it is evaluated.
func (r *reader) costOfQuery(filters []query.Filter, words []keyword) int {
	cost := 0
	for i := range filters {
		f := &filters[i]
		cost += r.costOfRows()
		for j := range f.Comparisons {
			cost += r.costOf(f.Property, &f.Comparisons[j])
		}
	}
	for _, word := range words {
		if word.kept != nil {
			cost += r.costOfRows()
		} else {
			cost += r.costOfKeyword(word.text)
		}
	}
	return cost
}

// costOf returns an upper bound of the cost of a comparison on a property.
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

// costOfKeyword returns an upper bound of the cost of a keyword, except for the terms of keys that
// contain the keyword.
func (r *reader) costOfKeyword(keyword string) int {
	return min(r.costOfIndex(keyword), int(r.scope.GetCardinality())*readCost)
}

// costOfReading returns the cost of comparing all values of a row with a keyword.
func (s *state) costOfReading(row uint32) int {
	if at := s.rows.at(row); at != nil {
		return max(readCost, len(at.data)*readByteCost)
	}
	return readCost
}

// costOfIndex returns this cost if the index finds the keyword.
func (r *reader) costOfIndex(keyword string) int {
	cost := comparisonCost + r.costOfRows() + len(r.clusters)*keyCost
	inTime := couldBeInTime(keyword)
	for _, id := range r.propertyNames {
		p := r.properties.get(id)
		cost += keyCost + len(p.keys)*keyCost + min(p.terms(), frequentTerms)*termCost
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
		return cost + sharedCost + r.terms.len()*(letterCost+termCost/4)
	case len(keyword) == 2:
		return cost + sharedCost + r.terms.len()*termCost/4
	}
	return cost + indexCost + r.candidates(keyword)*scanCost
}
