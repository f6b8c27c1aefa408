package embedded

import (
	"runtime"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// keyword returns the rows that contain a keyword.
func (r *reader) keyword(keyword string) (*roaring.Bitmap, error) {
	found := union{reader: r}
	for _, c := range r.clusters {
		if query.ContainsFold(c.name, keyword) {
			found.add(&c.rows)
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
				if err := r.spend(terms * termCost); err != nil {
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
	if len(keyword) == 1 {
		r.scan(keyword, own, isCluster, &found)
		return found.bitmap(), nil
	}
	r.addContaining(r.containing(keyword), keyword, &found)
	return found.bitmap(), nil
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

// scan compares every term except times, because most terms contain a single letter.
func (r *reader) scan(keyword string, own uint32, isCluster bool, found *union) {
	for _, id := range r.propertyNames {
		p := r.properties.get(id)
		if p.hidden || isCluster && id == own {
			continue
		}
		for at := (position{}); p.order.valid(at); at = p.order.next(at) {
			if t := r.terms.at(p.order.term(at)); !t.info().canonical() && r.contains(t, keyword) {
				found.add(&t.postings)
			}
		}
	}
}
