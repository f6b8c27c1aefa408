package embedded

import (
	"runtime"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// keyword returns a set of rows. Those of its rows that are within a given set are the rows of that
// set that contain the keyword.
func (r *reader) keyword(keyword string, within *roaring.Bitmap) (*roaring.Bitmap, error) {
	cost := r.costOfIndex(keyword)
	if r.costOfReadingAll(within, cost) < cost {
		return r.readForKeyword(keyword, within)
	}
	found := union{reader: r}
	for _, c := range r.clusters {
		if query.ContainsFold(c.name, keyword) {
			found.add(&c.rows)
		}
	}
	if cost > frequentFrom {
		need := cover{union: &found, rows: r.denseOf(within)}
		missing := r.addFrequent(keyword, &need)
		if missing == 0 {
			return within, nil
		}
		if missing*readCost < cost {
			if others := need.missing(); r.costOfReadingAll(others, cost) < cost {
				others, err := r.readForKeyword(keyword, others)
				found.add(&postings{many: &postingList{bitmap: others}})
				return found.bitmap(), err
			}
		}
	}
	own, isCluster := r.propertyNames[query.Cluster]
	for _, id := range r.propertyNames {
		p := r.properties.get(id)
		if p.hidden || isCluster && id == own {
			continue
		}
		for _, key := range p.keys {
			if query.ContainsFold(r.fields.get(key).key, keyword) {
				terms := 0
				r.eachOf(key, func(t *term) {
					found.add(&t.postings)
					terms++
				})
				if err := r.work(terms * termCost); err != nil {
					return nil, err
				}
			}
		}
		if p.counts[orderTime>>4] > 0 && couldBeInTime(keyword) {
			if p.timesByRow() && !spansT(keyword) && len(p.order) > 1 {
				found.addTimesContaining(p, keyword)
			} else {
				r.timesContaining(p, keyword, &found)
			}
		}
	}
	r.addContaining(r.containing(keyword), keyword, &found)
	return found.bitmap(), nil
}

// frequentTerms is the number of terms up to which the terms of a property are compared one by one. A few
// of them have most of the rows.
const frequentTerms = 1 << 11

// addFrequent adds the rows of frequent terms that contain a keyword until all needed rows are found, and
// returns the number of those that are not.
func (r *reader) addFrequent(keyword string, need *cover) int {
	var sets []*postings
	for _, id := range r.propertyNames {
		p := r.properties.get(id)
		if p.hidden || p.name == query.Cluster {
			continue
		}
		if inEachTime(keyword) && p.timesByRow() {
			sets = append(sets, &p.variants[variantTime])
		}
		if p.terms() > frequentTerms {
			continue
		}
		for at := (position{}); p.order.valid(at); at = p.order.next(at) {
			t := r.terms.at(p.order.term(at))
			if f := r.fields.get(t.info().field()); r.contains(t, keyword) || f.kind == query.Map && query.ContainsFold(f.key, keyword) {
				sets = append(sets, &t.postings)
			}
		}
	}
	counts := make(map[*postings]int, len(sets))
	for _, set := range sets {
		counts[set] = set.count()
	}
	slices.SortFunc(sets, func(a, b *postings) int { return counts[b] - counts[a] })
	for _, set := range sets {
		if need.complete() {
			return 0
		}
		need.union.add(set)
	}
	return need.count()
}

// inEachTime reports whether all times in their usual form contain a keyword.
func inEachTime(keyword string) bool {
	return len(keyword) == 1 && strings.ContainsAny(keyword, "tTzZ-:")
}

// readForKeyword returns the given rows that contain a keyword. It reads their terms.
func (r *reader) readForKeyword(keyword string, rows *roaring.Bitmap) (*roaring.Bitmap, error) {
	found := roaring.New()
	visited := 0
	var err error
	rows.Iterate(func(row uint32) bool {
		if r.rowContains(row, keyword) {
			found.Add(row)
		}
		if visited++; visited%checkEvery == 0 {
			err = r.pause()
		}
		return err == nil
	})
	return found, err
}

// rowContains reports whether a row contains a keyword.
func (s *state) rowContains(number uint32, keyword string) bool {
	at := s.rows.at(number)
	if query.ContainsFold(s.clusterOf(at).name, keyword) {
		return true
	}
	for i := uidEnd(at.data); i < len(at.data); {
		var number uint32
		number, i = uvarint(at.data, i)
		t := s.terms.at(number)
		f := s.fields.get(t.info().field())
		if p := s.properties.get(f.property); p.hidden || p.name == query.Cluster || t.info().empty() {
			continue
		}
		if s.contains(t, keyword) || f.kind == query.Map && query.ContainsFold(f.key, keyword) {
			return true
		}
	}
	return false
}

// addContaining adds the rows of the candidate terms that contain a keyword.
func (r *reader) addContaining(candidates *roaring.Bitmap, keyword string, found *union) {
	if len(keyword) <= 3 && exact(keyword) {
		var numbers [512]uint32
		all := candidates.ManyIterator()
		for n := all.NextMany(numbers[:]); n > 0; n = all.NextMany(numbers[:]) {
			found.addTerms(numbers[:n])
		}
		return
	}
	// Texts are read ahead, so that the processor waits for their memory only once.
	var numbers [64]uint32
	var terms [64]term
	var touched byte
	all := candidates.ManyIterator()
	for n := all.NextMany(numbers[:]); n > 0; n = all.NextMany(numbers[:]) {
		for i, number := range numbers[:n] {
			terms[i] = *r.terms.at(number)
		}
		for i := range terms[:n] {
			if text := terms[i].text; text != "" {
				touched ^= text[len(text)/2]
			}
		}
		for i := range terms[:n] {
			if r.contains(&terms[i], keyword) {
				found.add(&terms[i].postings)
			}
		}
	}
	runtime.KeepAlive(touched)
}

// contains reports whether a term contains a keyword, except if only the key of a map contains it.
func (s *state) contains(t *term, keyword string) bool {
	if query.ContainsFold(t.text, keyword) {
		return true
	}
	if strings.IndexByte(keyword, '=') < 0 {
		return false
	}
	f := s.fields.get(t.info().field())
	return f.kind == query.Map && query.ContainsFold(f.key+"="+t.text, keyword)
}

// couldBeInTime reports whether a keyword consists only of characters that times contain.
func couldBeInTime(keyword string) bool {
	for i := range len(keyword) {
		switch c := keyword[i]; {
		case '0' <= c && c <= '9', c == '-', c == ':', c == 't', c == 'T', c == 'z', c == 'Z':
		default:
			return false
		}
	}
	return len(keyword) <= len("2006-01-02T15:04:05Z")
}

// timesContaining adds the times of a property that contain a keyword. Trigrams do not index times.
func (r *reader) timesContaining(p *property, keyword string, found *union) {
	for at := (position{}); p.order.valid(at); at = p.order.next(at) {
		if t := r.terms.at(p.order.term(at)); t.info().canonical() && query.ContainsFold(t.text, keyword) {
			found.add(&t.postings)
		}
	}
}
