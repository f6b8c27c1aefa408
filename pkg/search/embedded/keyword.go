package embedded

import (
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// keywordsLimit bounds the number of kept keywords, which take at most one bit for each row. cachedText bounds
	// their length, because callers choose them.
	keywordsLimit = 128
	cachedText    = 1024
)

// requestKeyword is a keyword for which a search of a request has paid, so that the others do not pay again. The console
// searches for a keyword several times in a request, each time with another kind. version is that of the rows which the
// index has found, or 0 if they are not known.
type requestKeyword struct {
	budget         *search.Budget
	scope, version uint64
	keyword        string
}

// kept returns the rows of a keyword in a version, and reports whether they were kept.
func (r *reader) kept(keyword string, version uint64) (*roaring.Bitmap, bool) {
	found, ok := r.keywords.Get(requestKeyword{r.budget, r.scopeID, version, keyword})
	rows, _ := found.(*roaring.Bitmap)
	return rows, ok
}

func (r *reader) keep(keyword string, version uint64, rows *roaring.Bitmap) {
	if len(keyword) <= cachedText {
		r.keywords.Add(requestKeyword{r.budget, r.scopeID, version, keyword}, rows)
	}
}

// keyword returns a set of rows. Those of its rows that are within a given set are the rows of that
// set that contain the keyword.
func (r *reader) keyword(keyword string, within *roaring.Bitmap) (*roaring.Bitmap, error) {
	cost := r.costOfKeyword(keyword) - coarse(r.state.terms.len())*sharedTermCost
	if r.costOfReading(within, cost) < cost {
		return r.readForKeyword(keyword, within)
	}
	if rows, _ := r.kept(keyword, r.state.version); rows != nil {
		return rows, nil
	}
	found := union{reader: r}
	for _, c := range r.state.clusters {
		if query.ContainsFold(c.name, keyword) {
			found.add(&c.rows)
		}
	}
	if len(keyword) < 3 {
		others := r.withoutFrequent(keyword, within, &found)
		if all := r.costOfKeyword(keyword); r.costOfReading(others, all) < all {
			others, err := r.readForKeyword(keyword, others)
			found.add(&postings{many: &postingList{bitmap: others}})
			rows := found.bitmap()
			if err == nil && within == r.scope {
				r.keep(keyword, r.state.version, rows)
			}
			return rows, err
		}
	}
	candidates := r.state.containing(keyword)
	if cost += int(candidates.GetCardinality()) * costOfCandidate(keyword); r.costOfReading(within, cost) < cost {
		return r.readForKeyword(keyword, within)
	}
	for _, id := range r.state.propertyNames {
		p := r.state.properties.get(id)
		if p.hidden || p.name == query.Cluster {
			continue
		}
		if err := r.addKeys(p, keyword, &found); err != nil {
			return nil, err
		}
		if p.counts[orderTime>>4] > 0 && couldBeInTime(keyword) {
			if p.timesByRow() && !spansT(keyword) && len(p.order) > 1 {
				found.addTimesContaining(p, keyword)
			} else {
				r.timesContaining(p, keyword, &found)
			}
		}
	}
	if err := r.addContaining(candidates, keyword, &found); err != nil {
		return nil, err
	}
	rows := found.bitmap()
	r.keep(keyword, r.state.version, rows)
	return rows, nil
}

// frequentTerms is the number of terms up to which the terms of a property are compared one by one. A few of them have
// most of the rows. frequentCompared bounds their number in all properties.
const frequentTerms, frequentCompared = 1 << 11, 1 << 17

// withoutFrequent adds the rows of frequent terms that contain a keyword to a union, the largest sets first, until it
// contains all rows of a set. It returns the rows of the set that the union does not contain. Most rows contain a letter,
// so the other terms need not be read.
func (r *reader) withoutFrequent(keyword string, within *roaring.Bitmap, found *union) *roaring.Bitmap {
	type frequent struct {
		rows  *postings
		count int
	}
	var sets []frequent
	compared := 0
	for _, id := range r.state.propertyNames {
		p := r.state.properties.get(id)
		if p.hidden || p.name == query.Cluster || p.terms() > frequentTerms || compared >= frequentCompared || r.pause() != nil {
			continue
		}
		compared += p.terms()
		for at := (position{}); p.order.valid(at); at = p.order.next(at) {
			t := r.state.terms.at(p.order.term(at))
			if f := r.state.fields.get(t.info().field()); r.state.contains(t, keyword) || f.kind == query.Map && query.ContainsFold(f.key, keyword) {
				sets = append(sets, frequent{&t.postings, t.postings.count()})
			}
		}
	}
	slices.SortFunc(sets, func(a, b frequent) int { return b.count - a.count })
	missing, covered := r.denseOf(within), 0
	found.begin()
	for i := range sets {
		for covered < len(missing) && missing[covered]&^found.rows[covered] == 0 {
			covered++
		}
		if covered == len(missing) {
			break
		}
		found.add(sets[i].rows)
	}
	for i := range missing {
		missing[i] &^= found.rows[i]
	}
	return r.bitmap(missing)
}

// costOfCandidate returns the cost of adding the rows of a term if it contains a keyword.
func costOfCandidate(keyword string) int {
	if surely(keyword) {
		return termCost / 4
	}
	return scanCost
}

// surely reports whether all terms that trigrams find for a keyword contain it.
func surely(keyword string) bool { return len(keyword) <= 3 && exact(keyword) }

// addKeys adds the rows with a key of a map that contains a keyword.
func (r *reader) addKeys(p *property, keyword string, found *union) error {
	for i, id := range p.keys {
		if i%checkEvery == checkEvery-1 {
			if err := r.pause(); err != nil {
				return err
			}
		}
		key := r.state.fields.get(id).key
		if !query.ContainsFold(key, keyword) {
			continue
		}
		section := r.state.ofKey(p, key)
		for at := section.from; at.before(section.to); at = p.order.next(at) {
			if t := r.state.terms.at(p.order.term(at)); section.matches(t) {
				found.add(&t.postings)
			}
		}
	}
	return nil
}

// readForKeyword returns the given rows that contain a keyword. It reads their terms.
func (r *reader) readForKeyword(keyword string, rows *roaring.Bitmap) (*roaring.Bitmap, error) {
	found := roaring.New()
	return found, r.each(rows, func(row uint32) {
		if r.state.rowContains(row, keyword) {
			found.Add(row)
		}
	})
}

// rowContains reports whether a row contains a keyword.
func (s *state) rowContains(number uint32, keyword string) bool {
	at := s.rows.at(number)
	if query.ContainsFold(s.clusterOf(at).name, keyword) {
		return true
	}
	for _, t := range s.termsOf(at.data) {
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
func (r *reader) addContaining(candidates *roaring.Bitmap, keyword string, found *union) error {
	sure, visited := surely(keyword), 0
	for terms := candidates.Iterator(); terms.HasNext(); {
		if t := r.state.terms.at(terms.Next()); sure || r.state.contains(t, keyword) {
			found.add(&t.postings)
		}
		if visited++; visited%checkEvery == 0 {
			if err := r.pause(); err != nil {
				return err
			}
		}
	}
	return nil
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
	return len(keyword) <= len("2006-01-02T15:04:05Z") && strings.Trim(keyword, "0123456789-:tTzZ") == ""
}

// timesContaining adds the times of a property that contain a keyword. Trigrams do not index times.
func (r *reader) timesContaining(p *property, keyword string, found *union) {
	for at := (position{}); p.order.valid(at); at = p.order.next(at) {
		if t := r.state.terms.at(p.order.term(at)); t.info().canonical() && query.ContainsFold(t.text, keyword) {
			found.add(&t.postings)
		}
	}
}
