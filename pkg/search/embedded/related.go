package embedded

import (
	"errors"
	"runtime"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// relatedBytes is the memory for the UID of a match of a related item.
	relatedBytes = 40
	// rowsPerKind is the number of rows that can be read in the time in which the rows of a kind are counted.
	rowsPerKind = 100
)

// walker follows edges between rows in the scope of the caller.
type walker struct {
	reader         *reader
	depth          int
	visible, found dense
	// origins are the matching rows to which related items refer. For each number of edges, within contains the rows after
	// which paths continue and that are at most so many edges away from an origin.
	origins dense
	within  []dense
}

// related returns the resources that are related to the matching rows, and the items that are
// related to the rows of the page.
func (r *reader) related(found *roaring.Bitmap, page []uint32, request *search.Request) ([]search.Related, error) {
	w := &walker{reader: r, depth: max(1, request.RelatedDepth), visible: r.denseOf(r.scope), found: r.denseOf(found)}
	reached, err := w.reach(found)
	if err != nil {
		return nil, err
	}
	counts, err := w.countKinds(reached, request)
	if err != nil {
		return nil, err
	}
	w.origins = w.found
	var rows map[string][]uint32
	if request.RelatedItems {
		if request.Items && len(page) < int(found.GetCardinality()) {
			origins := roaring.BitmapOf(page...)
			w.origins = r.denseOf(origins)
			if reached, err = w.reach(origins); err != nil {
				return nil, err
			}
		}
		rows = w.byKind(reached, request.RelatedLimit)
	}
	related := make([]search.Related, 0, len(counts))
	for kind, count := range counts {
		ofKind := search.Related{Kind: kind, Count: count}
		if rows := rows[kind]; len(rows) > 0 {
			if ofKind.Items, err = r.items(rows); err != nil {
				return nil, err
			}
			if err := w.relate(ofKind.Items, rows); err != nil {
				return nil, err
			}
		}
		related = append(related, ofKind)
	}
	slices.SortFunc(related, func(a, b search.Related) int { return strings.Compare(a.Kind, b.Kind) })
	return related, nil
}

// passes reports whether paths continue after a row.
func (w *walker) passes(number uint32) bool {
	kind := w.reader.state.kindOf(w.reader.state.rows.at(number).kind)
	return w.visible.has(number) && kind != "Node" && kind != "Channel"
}

// reach returns the rows that can be reached from the given rows, except the matching rows.
func (w *walker) reach(origins *roaring.Bitmap) (dense, error) {
	reached := w.reader.dense(w.reader.state.rows.len())
	level := origins.ToArray()
	w.within = make([]dense, w.depth)
	for i := range w.within {
		w.within[i] = w.reader.dense(w.reader.state.rows.len())
	}
	for depth := w.depth; depth > 0; depth-- {
		var next []uint32
		for numbers := range slices.Chunk(level, checkEvery) {
			edges := 0
			w.fetch(numbers)
			for _, number := range numbers {
				neighbours := w.reader.state.adjacency.get(number)
				edges += len(neighbours) + 1
				for _, e := range neighbours {
					if other := e.other(); depth > 1 && !reached.has(other) && w.passes(other) {
						next = append(next, other)
						for _, within := range w.within[w.depth-depth+1:] {
							within.set(other)
						}
					}
					reached.set(e.other())
				}
			}
			if err := errors.Join(w.reader.spend(edges*edgeCost*min(depth, 2)), w.reader.pause()); err != nil {
				return nil, err
			}
		}
		level = next
	}
	for i := range reached {
		reached[i] &= w.visible[i] &^ w.found[i]
	}
	return reached, nil
}

// fetch reads the edges of rows into the cache of the processor, so that it waits for their memory only once.
func (w *walker) fetch(rows []uint32) {
	var touched end
	for _, number := range rows {
		if edges := w.reader.state.adjacency.get(number); len(edges) > 0 {
			touched ^= edges[0]
		}
	}
	runtime.KeepAlive(touched)
}

// countKinds counts rows by their kind. It omits the kinds that the request does not relate.
func (w *walker) countKinds(reached dense, request *search.Request) (map[string]int, error) {
	byTerm := map[uint32]int{}
	all := selection{bitmap: roaring.FromDense(reached, false), dense: reached}
	rest := int(all.bitmap.GetCardinality())
	if property := w.reader.inScope(query.Kind); property != nil && property.terms() <= rest/rowsPerKind {
		for at, steps := (position{}), 1; property.order.valid(at); at, steps = property.order.next(at), steps+1 {
			if steps%checkEvery == 0 && w.reader.pause() != nil {
				return nil, w.reader.ctx.Err()
			}
			number := property.order.term(at)
			t := w.reader.state.terms.at(number)
			if w.reader.state.fields.get(t.info().field()).kind >= query.Map {
				continue
			}
			if count := t.postings.countIn(&all); count > 0 {
				byTerm[number] = count
				rest -= count
			}
		}
		if rest > 0 {
			byTerm[0] = rest
		}
	} else {
		reached.each(func(number uint32) { byTerm[w.reader.state.rows.at(number).kind]++ })
	}
	counts := map[string]int{}
	for number, count := range byTerm {
		if kind := w.reader.state.kindOf(number); request.RelatesKind(kind) {
			counts[kind] += count
		}
	}
	return counts, nil
}

// byKind groups rows by their kind. It returns up to limit rows of each kind, or all if limit is negative.
func (w *walker) byKind(reached dense, limit int) map[string][]uint32 {
	byKind := map[string][]uint32{}
	reached.each(func(number uint32) {
		kind := w.reader.state.kindOf(w.reader.state.rows.at(number).kind)
		if rows := byKind[kind]; limit < 0 || len(rows) < limit {
			byKind[kind] = append(rows, number)
		}
	})
	return byKind
}

// relate sets the origins to which each item is related, by following edges back from the item.
func (w *walker) relate(items []search.Item, rows []uint32) error {
	names := map[uint32]string{}
	var to []uint32
	for i, number := range rows {
		if i%checkEvery == checkEvery-1 && w.reader.pause() != nil {
			return w.reader.ctx.Err()
		}
		var err error
		if to, err = w.originsAt(number, to[:0]); err != nil {
			return err
		}
		if err := w.reader.hold(len(to) * relatedBytes); err != nil {
			return err
		}
		uids := make([]string, len(to))
		for j, match := range to {
			uid, known := names[match]
			if !known {
				uid = w.reader.state.uid(match)
				names[match] = uid
			}
			uids[j] = uid
		}
		items[i].RelatedTo = uids
	}
	return nil
}

// originsAt appends the origins from which a row can be reached.
func (w *walker) originsAt(number uint32, to []uint32) ([]uint32, error) {
	level := []uint32{number}
	for depth := w.depth; depth > 0; depth-- {
		var next []uint32
		for _, from := range level {
			edges := w.reader.state.adjacency.get(from)
			if err := errors.Join(w.reader.spend((1+len(edges))*2*edgeCost), w.reader.pause()); err != nil {
				return nil, err
			}
			for _, e := range edges {
				if w.origins.has(e.other()) {
					to = append(to, e.other())
				}
				if w.within[depth-1].has(e.other()) {
					next = append(next, e.other())
				}
			}
		}
		slices.Sort(next)
		level = slices.Compact(next)
	}
	slices.Sort(to)
	return slices.Compact(to), nil
}
