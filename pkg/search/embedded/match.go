package embedded

import (
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// matcher finds the terms of one property for which a comparison holds. It selects candidates by
// their order or by trigrams, and evaluates the comparison only for these.
type matcher struct {
	reader     *reader
	property   *property
	comparison *query.Comparison
	to         *union
	// pairs is true if the comparison is with pairs of keys and values of maps, instead of keys.
	pairs bool

	// sections and found are the candidates. found contains terms of all properties. byRow is true if the comparison is
	// with the times of all rows.
	sections []section
	found    *roaring.Bitmap
	byRow    bool
}

// section is a part of the ordered terms of the property. matches reports whether the comparison holds for a term. It is
// nil if the comparison holds for all of them.
type section struct {
	from, to position
	matches  func(t *term) bool
}

// match adds the rows of the terms of a property for which a comparison holds. It returns false, and adds nothing, if
// reading the scope costs less.
func (r *reader) match(p *property, c comparisonTo) (bool, error) {
	m := matcher{reader: r, property: p, comparison: c.Comparison, to: c.to, pairs: strings.Contains(c.Text, "=")}
	if !m.pairs && len(p.keys) > 0 {
		if !exactText(p.name, c.Comparison) && !m.worth(len(p.keys)*m.costOfTerm()) {
			return false, nil
		}
		m.findKeys()
	}
	switch c.Op {
	case query.Less, query.LessOrEqual, query.Greater, query.GreaterOrEqual:
		m.findInOrder()
	default:
		m.findEqual()
	}
	if !m.worth(m.cost()) {
		return false, nil
	}
	return true, m.visit()
}

// worth reports whether a cost is not more than that of reading the scope.
func (m *matcher) worth(cost int) bool { return m.reader.costOfReading(m.reader.scope, cost) == cost }

// costOfTerm is the cost of comparing a term.
func (m *matcher) costOfTerm() int {
	if len(m.property.keys) > 0 {
		return pairCost + partCost*len(m.comparison.Parts)
	}
	return scanCost + partCost*len(m.comparison.Parts)
}

// cost returns the cost of visiting the candidates.
func (m *matcher) cost() int {
	cost := 0
	for i := range m.sections {
		terms := m.property.order.between(m.sections[i].from, m.sections[i].to)
		if m.sections[i].matches == nil {
			cost += terms * termCost
		} else {
			cost += terms * m.costOfTerm()
		}
	}
	if m.found != nil {
		cost += int(m.found.GetCardinality()) * m.costOfTerm()
	}
	if m.byRow {
		cost += m.reader.state.rows.len() * 2
	}
	return cost
}

// visit adds the rows of the candidates for which the comparison holds.
func (m *matcher) visit() error {
	visited := 0
	add := func(number uint32, matches func(t *term) bool) error {
		if t := m.reader.state.terms.at(number); matches == nil || matches(t) {
			m.to.add(&t.postings)
		}
		if visited++; visited%checkEvery == 0 {
			return m.reader.pause()
		}
		return nil
	}
	for _, s := range m.sections {
		for o, p := m.property.order, s.from; p.before(s.to); p = o.next(p) {
			if err := add(o.term(p), s.matches); err != nil {
				return err
			}
		}
	}
	if m.byRow {
		first, last := timeRange(m.comparison, m.reader.now)
		m.to.addTimes(m.property, func(value int64) bool { return first <= value && value <= last })
	}
	if m.found == nil {
		return nil
	}
	own := m.reader.state.propertyNames[m.property.name]
	ofProperty := func(t *term) bool {
		return m.reader.state.fields.get(t.info().field()).property == own && !t.info().number() && m.matches(t)
	}
	for terms := m.found.Iterator(); terms.HasNext(); {
		if err := add(terms.Next(), ofProperty); err != nil {
			return err
		}
	}
	return nil
}

// exactText reports whether a comparison on a property holds only for one text.
func exactText(property string, c *query.Comparison) bool {
	return (c.Op == query.Equal || c.Op == query.NotEqual) && len(c.Parts) == 1 && c.Number == nil && c.Age == 0 && !foldsKind(property, c)
}

// foldsKind reports whether a comparison ignores case.
func foldsKind(property string, c *query.Comparison) bool {
	return property == query.Kind && c.Text != "" && 'a' <= c.Text[0] && c.Text[0] <= 'z'
}

// findKeys finds the terms of maps with a key for which the comparison holds.
func (m *matcher) findKeys() {
	if exactText(m.property.name, m.comparison) {
		m.sections = append(m.sections, m.reader.state.ofKey(m.property, m.comparison.Parts[0]))
		return
	}
	for _, id := range m.property.keys {
		key := m.reader.state.fields.get(id).key
		if m.comparison.MatchesLeaf(m.property.name, query.Map, query.Leaf{Key: key}, m.reader.now) {
			m.sections = append(m.sections, m.reader.state.ofKey(m.property, key))
		}
	}
}

// ofKey returns the section of the terms with a key of a map.
func (s *state) ofKey(p *property, key string) section {
	after, _ := successor(key + "=")
	return section{from: s.seek(p.order, orderedKey{key: key, pair: true}), to: s.seek(p.order, textKey(after)), matches: func(t *term) bool {
		f := s.fields.get(t.info().field())
		return f.kind == query.Map && f.key == key
	}}
}

// matches reports whether the comparison holds for a term.
func (m *matcher) matches(t *term) bool {
	f := m.reader.state.fields.get(t.info().field())
	if f.kind == query.Map && !m.pairs {
		return false
	}
	return m.comparison.MatchesLeaf(m.property.name, f.kind, query.Leaf{Key: f.key, Type: t.info().leaf(), Text: t.text}, m.reader.now)
}

// find adds a section whose terms are compared.
func (m *matcher) find(from, to position) {
	m.sections = append(m.sections, section{from: from, to: to, matches: m.matches})
}

// firstText returns the position after the numbers.
func (m *matcher) firstText() position {
	return m.property.order.search(func(number uint32) bool { return !m.reader.state.terms.at(number).info().number() })
}

// onlyTimes reports whether all terms except numbers are times whose order by bytes is their order by time.
func (m *matcher) onlyTimes() bool {
	counts := &m.property.counts
	return counts[orderTime>>4] > 0 && counts[orderText>>4] == 0 && counts[orderOdd>>4] == 0
}

// findRun finds the terms for which the comparison holds between two positions, which must be at the start or at the end.
func (m *matcher) findRun(from, to position) {
	if !from.before(to) {
		return
	}
	holds := func(number uint32) bool {
		return m.comparison.MatchesLeaf(m.property.name, query.String, query.Leaf{Text: m.reader.state.terms.at(number).text}, m.reader.now)
	}
	o := m.property.order
	beginning := holds(o.term(from))
	numbers := m.reader.state.terms.at(o.term(from)).info().number()
	turn := o.search(func(number uint32) bool {
		if isNumber := m.reader.state.terms.at(number).info().number(); isNumber != numbers {
			return numbers
		}
		return holds(number) != beginning
	})
	if beginning {
		m.sections = append(m.sections, section{from: from, to: turn})
	} else {
		m.sections = append(m.sections, section{from: turn, to: to})
	}
}

// findInOrder finds the terms for which <, <=, > or >= holds.
func (m *matcher) findInOrder() {
	texts, end := m.firstText(), m.property.order.end()
	switch c := m.comparison; {
	case c.Number != nil:
		m.findRun(position{}, texts)
	case c.Time != nil || c.Age > 0:
		m.findTimes()
	case len(m.property.keys) > 0:
		m.find(position{}, end)
	default:
		m.find(position{}, texts)
		m.findRun(texts, end)
	}
}

// findTimes finds the times before or after another time.
func (m *matcher) findTimes() {
	texts, end := m.firstText(), m.property.order.end()
	switch {
	case !m.onlyTimes():
		m.find(texts, end)
	case m.property.timesByRow() && end.chunk > 1:
		m.byRow = true
	default:
		m.findRun(texts, end)
	}
}

// findEqual finds the terms for which the comparison holds as Equal.
func (m *matcher) findEqual() {
	c, o := m.comparison, m.property.order
	switch {
	case len(c.Parts) == 0:
	case foldsKind(m.property.name, c):
		m.find(position{}, o.end())
	case c.Age > 0:
		m.findTimes()
	case c.Number != nil:
		m.find(m.reader.state.seek(o, orderedKey{number: true, value: *c.Number}), o.search(func(number uint32) bool {
			k := m.reader.state.orderedKey(m.reader.state.terms.at(number))
			return !k.number || k.value > *c.Number
		}))
	case !c.Wildcard():
		text := textKey(c.Parts[0])
		m.find(m.reader.state.seek(o, text), o.search(func(number uint32) bool {
			k := m.reader.state.orderedKey(m.reader.state.terms.at(number))
			return compareKeys(&k, &text) > 0
		}))
	default:
		m.findPattern()
	}
}

// findPattern finds the terms that may match a pattern.
func (m *matcher) findPattern() {
	c, o := m.comparison, m.property.order
	texts := m.firstText()
	m.find(position{}, texts)
	first := c.Parts[0]
	longest, indexed := patternPiece(m.property, c)
	switch {
	case first != "":
		from, to := m.reader.state.seek(o, textKey(first)), o.end()
		after, ok := successor(first)
		if ok {
			to = m.reader.state.seek(o, textKey(after))
		}
		if ok && len(c.Parts) == 2 && c.Parts[1] == "" && len(m.property.keys) == 0 {
			m.sections = append(m.sections, section{from: from, to: to})
		} else {
			m.find(from, to)
		}
	case indexed:
		m.found = m.reader.state.containing(longest)
	default:
		m.find(texts, o.end())
	}
}

// successor returns the first text after all texts that begin with a prefix.
func successor(prefix string) (string, bool) {
	last := len(prefix) - 1
	if prefix[last] == 0xff {
		return "", false
	}
	return prefix[:last] + string([]byte{prefix[last] + 1}), true
}

// patternPiece returns the part of a pattern to look up by trigrams, or false if trigrams do not apply.
func patternPiece(p *property, c *query.Comparison) (string, bool) {
	if p.hidden || p.counts[orderTime>>4] > 0 || len(p.keys) > 0 {
		return "", false
	}
	longest := longestPart(c)
	return longest, len(longest) >= 3
}

func longestPart(c *query.Comparison) string {
	longest := ""
	for _, part := range c.Parts {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}
