package embedded

import (
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// matcher finds the terms of one property for which a comparison holds. It selects candidates by
// their order or by trigrams, and evaluates the comparison only for these.
type matcher struct {
	*reader
	property   *property
	comparison *query.Comparison
	to         *union
	// pairs is true if the comparison is with pairs of keys and values of maps, instead of keys.
	pairs bool
}

// keys adds the rows with a key for which the comparison holds.
func (m *matcher) keys() {
	if exactText(m.property.name, m.comparison) {
		m.eachOfKey(m.property, m.comparison.Parts[0], func(t *term) { m.to.add(&t.postings) })
		return
	}
	for _, id := range m.property.keys {
		f := m.fields.get(id)
		if m.comparison.MatchesLeaf(m.property.name, query.Map, query.Leaf{Key: f.key}, m.now) {
			m.eachOf(id, func(t *term) { m.to.add(&t.postings) })
		}
	}
}

// exactText reports whether a comparison on a property holds only for one text.
func exactText(property string, c *query.Comparison) bool {
	return (c.Op == query.Equal || c.Op == query.NotEqual) && len(c.Parts) == 1 && c.Number == nil && c.Age == 0 && !foldsKind(property, c)
}

// foldsKind reports whether a comparison ignores case.
func foldsKind(property string, c *query.Comparison) bool {
	return property == query.Kind && c.Text != "" && 'a' <= c.Text[0] && c.Text[0] <= 'z'
}

// eachOf executes call for the terms of one field of a map.
func (s *state) eachOf(id uint32, call func(t *term)) {
	f := s.fields.get(id)
	s.eachOfKey(s.properties.get(f.property), f.key, call)
}

// eachOfKey executes call for the terms of a key of a map, if it exists.
func (s *state) eachOfKey(property *property, key string, call func(t *term)) {
	o := property.order
	prefix := key + "="
	for p := s.seek(o, orderedKey{key: key, pair: true}); o.valid(p); p = o.next(p) {
		t := s.terms.at(o.term(p))
		if f := s.fields.get(t.info().field()); f.kind == query.Map && f.key == key {
			call(t)
		} else if !strings.HasPrefix(s.shown(t), prefix) {
			return
		}
	}
}

// verify adds a term if the comparison holds for it.
func (m *matcher) verify(t *term) {
	f := m.fields.get(t.info().field())
	if f.kind == query.Map && !m.pairs {
		return
	}
	if m.comparison.MatchesLeaf(m.property.name, f.kind, query.Leaf{Key: f.key, Type: t.info().leaf(), Text: t.text}, m.now) {
		m.to.add(&t.postings)
	}
}

// verifyFrom verifies the terms between two positions.
func (m *matcher) verifyFrom(p, end position) {
	for o := m.property.order; p.before(end); p = o.next(p) {
		m.verify(m.terms.at(o.term(p)))
	}
}

// addFrom adds the terms between two positions, which all match.
func (m *matcher) addFrom(p, end position) {
	for o := m.property.order; p.before(end); p = (position{chunk: p.chunk + 1}) {
		terms := o[p.chunk]
		if end.chunk == p.chunk {
			terms = terms[:end.at]
		}
		m.to.addTerms(terms[p.at:])
	}
}

// firstText returns the position after the numbers.
func (m *matcher) firstText() position {
	return m.property.order.search(func(number uint32) bool { return !m.terms.at(number).info().number() })
}

// onlyTimes reports whether all terms except numbers are times whose order by bytes is their order
// by time.
func (m *matcher) onlyTimes() bool {
	counts := &m.property.counts
	return counts[orderTime>>4] > 0 && counts[orderText>>4] == 0 && counts[orderOdd>>4] == 0
}

// holds reports whether the comparison holds for a term that does not belong to a map.
func (m *matcher) holds(number uint32) bool {
	t := m.terms.at(number)
	return m.comparison.MatchesLeaf(m.property.name, query.String, query.Leaf{Text: t.text}, m.now)
}

// addRun adds the terms of a section for which the comparison holds. The section contains the
// numbers, or all other terms. The matching terms must be at the start or at the end of the
// section.
func (m *matcher) addRun(numbers bool) {
	o := m.property.order
	first, end := position{}, m.firstText()
	if !numbers {
		first, end = end, o.end()
	}
	if !first.before(end) {
		return
	}
	beginning := m.holds(o.term(first))
	turn := o.search(func(number uint32) bool {
		isNumber := m.terms.at(number).info().number()
		if numbers {
			return !isNumber || m.holds(number) != beginning
		}
		return !isNumber && m.holds(number) != beginning
	})
	if beginning {
		m.addFrom(first, turn)
	} else {
		m.addFrom(turn, end)
	}
}

// inOrder adds the terms for which <, <=, > or >= holds.
func (m *matcher) inOrder() {
	c := m.comparison
	texts := m.firstText()
	switch {
	case c.Number != nil:
		m.addRun(true)
	case c.Time != nil || c.Age > 0:
		m.times()
	case len(m.property.keys) > 0:
		m.verifyFrom(position{}, m.property.order.end())
	default:
		m.verifyFrom(position{}, texts)
		m.addRun(false)
	}
}

// times adds the times before or after another time.
func (m *matcher) times() {
	texts, end := m.firstText(), m.property.order.end()
	switch {
	case !m.onlyTimes():
		m.verifyFrom(texts, end)
	case m.property.timesByRow() && end.chunk > 1:
		first, last := timeRange(m.comparison, m.now)
		m.to.addTimes(m.property, func(value int64) bool { return first <= value && value <= last })
	default:
		m.addRun(false)
	}
}

// equal adds the terms for which the comparison holds as Equal.
func (m *matcher) equal() {
	c := m.comparison
	o := m.property.order
	switch {
	case len(c.Parts) == 0:
	case foldsKind(m.property.name, c):
		m.verifyFrom(position{}, o.end())
	case c.Age > 0:
		m.times()
	case c.Number != nil:
		p := m.seek(o, orderedKey{number: true, value: *c.Number})
		for ; o.valid(p) && m.holdsNumber(o.term(p)); p = o.next(p) {
			m.to.add(&m.terms.at(o.term(p)).postings)
		}
	case !c.Wildcard():
		for p := m.seek(o, textKey(c.Parts[0])); o.valid(p); p = o.next(p) {
			if t := m.terms.at(o.term(p)); !m.isText(t, c.Parts[0]) {
				return
			} else {
				m.verify(t)
			}
		}
	default:
		m.pattern()
	}
}

// isText reports whether completions show a given text for a term.
func (m *matcher) isText(t *term, text string) bool {
	f := m.fields.get(t.info().field())
	if f.kind != query.Map {
		return t.text == text
	}
	return len(text) == len(f.key)+1+len(t.text) && text[:len(f.key)] == f.key && text[len(f.key)] == '=' && text[len(f.key)+1:] == t.text
}

func (m *matcher) holdsNumber(number uint32) bool {
	return m.terms.at(number).info().number() && m.holds(number)
}

// pattern adds the terms that match a pattern.
func (m *matcher) pattern() {
	c := m.comparison
	o := m.property.order
	texts := m.firstText()
	m.verifyFrom(position{}, texts)
	if first := c.Parts[0]; first != "" {
		if after, ok := successor(first); ok && len(c.Parts) == 2 && c.Parts[1] == "" && len(m.property.keys) == 0 {
			m.addFrom(m.seek(o, textKey(first)), m.seek(o, textKey(after)))
			return
		}
		p := m.seek(o, textKey(first))
		for ; o.valid(p); p = o.next(p) {
			t := m.terms.at(o.term(p))
			if !m.hasPrefix(t, first) {
				return
			}
			m.verify(t)
		}
		return
	}
	if found := m.patternCandidates(); found != nil {
		own := m.propertyNames[m.property.name]
		found.Iterate(func(number uint32) bool {
			t := m.terms.at(number)
			if m.fields.get(t.info().field()).property == own && !t.info().number() {
				m.verify(t)
			}
			return true
		})
		return
	}
	m.verifyFrom(texts, o.end())
}

// successor returns the first text after all texts that begin with a prefix.
func successor(prefix string) (string, bool) {
	last := len(prefix) - 1
	if prefix[last] == 0xff {
		return "", false
	}
	return prefix[:last] + string([]byte{prefix[last] + 1}), true
}

func (m *matcher) hasPrefix(t *term, prefix string) bool {
	f := m.fields.get(t.info().field())
	if f.kind != query.Map {
		return strings.HasPrefix(t.text, prefix)
	}
	return strings.HasPrefix(m.shown(t), prefix)
}

// patternCandidates returns the terms that may match according to trigrams, or nil if trigrams do
// not apply.
func (m *matcher) patternCandidates() *roaring.Bitmap {
	if longest, indexed := patternPiece(m.property, m.comparison); indexed {
		return m.containing(longest)
	}
	return nil
}

// patternPiece returns the part of a pattern to look up by trigrams, or false if trigrams do not
// apply.
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
