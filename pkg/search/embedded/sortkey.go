package embedded

import "open-cluster-management.io/hub-apiserver/pkg/search/query"

// sortKey is a value by which rows are sorted.
type sortKey struct {
	query.OrderKey
	missing bool
}

func newSortKey(text string) sortKey { return sortKey{OrderKey: query.NewOrderKey(text)} }

// compare compares two keys. A missing key comes last in both directions.
func (k *sortKey) compare(other *sortKey, descending bool) int {
	switch {
	case k.missing && other.missing:
		return 0
	case k.missing:
		return 1
	case other.missing:
		return -1
	case descending:
		return other.Compare(&k.OrderKey)
	}
	return k.Compare(&other.OrderKey)
}

// sortKey returns the key of a row for a property, which is the key of its first leaf.
func (s *state) sortKey(number uint32, name string) sortKey {
	r := s.rows.at(number)
	if name == query.Cluster {
		return newSortKey(s.clusterOf(r).name)
	}
	if id, known := s.propertyNames[name]; known {
		if first := s.firstTerm(r.data, id); first != 0 {
			return s.termKey(first)
		}
	}
	return sortKey{missing: true}
}

// termKey returns the sort key of a term.
func (s *state) termKey(number uint32) sortKey {
	t := s.terms.at(number)
	if t.info().order() != orderText {
		return newSortKey(t.text)
	}
	// A leaf without a key is sorted by its text, even in a map.
	if f := s.fields.get(t.info().field()); f.kind == query.Map {
		if f.key != "" {
			return newSortKey(f.key + "=" + t.text)
		}
		return newSortKey(t.text)
	}
	return sortKey{OrderKey: query.PlainOrderKey(t.text)}
}

// sameKey reports whether two terms have the same sort key.
func (s *state) sameKey(a, b uint32) bool {
	ta, tb := s.terms.at(a), s.terms.at(b)
	if ta.info() == tb.info() && ta.info().order() == orderText {
		// Different terms of a field have different texts, which are far apart in memory.
		return a == b
	}
	ka, kb := s.termKey(a), s.termKey(b)
	return ka.compare(&kb, false) == 0
}

// inKeyOrder reports whether the order of the terms equals the order of their sort keys.
func (p *property) inKeyOrder() bool {
	return p.counts[orderOdd>>4] == 0 && (p.counts[orderTime>>4] == 0 || p.counts[orderText>>4] == 0) && p.emptyKeys == 0
}
