package embedded

import (
	"errors"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// relatedBytes is the memory for the UID of a match of a related item. seenCost is the cost of an
// edge on a path of several edges back from an item, in nanoseconds.
const (
	relatedBytes = 40
	seenCost     = 100
)

// walker follows edges between rows in the scope of the caller.
type walker struct {
	*reader
	depth          int
	visible, found dense
	// origins are the matching rows to which related items refer.
	origins dense
}

// related returns the resources that are related to the matching rows, and the items that are
// related to the rows of the page.
func (r *reader) related(found *roaring.Bitmap, page []uint32, request *search.Request) ([]search.Related, error) {
	w := &walker{reader: r, depth: max(1, request.RelatedDepth), visible: r.denseOf(r.scope), found: r.denseOf(found)}
	reached, err := w.reach(found)
	if err != nil {
		return nil, err
	}
	byKind := w.byKind(reached, request.RelatedKinds)
	w.origins = w.found
	ofPage := byKind
	if request.RelatedItems && request.Items && len(page) < int(found.GetCardinality()) {
		origins := roaring.BitmapOf(page...)
		w.origins = r.denseOf(origins)
		if reached, err = w.reach(origins); err != nil {
			return nil, err
		}
		ofPage = w.byKind(reached, request.RelatedKinds)
	}
	related := make([]search.Related, 0, len(byKind))
	for kind, rows := range byKind {
		one := search.Related{Kind: kind, Count: len(rows)}
		if rows = ofPage[kind]; request.RelatedItems && len(rows) > 0 {
			if request.RelatedLimit >= 0 {
				rows = rows[:min(len(rows), request.RelatedLimit)]
			}
			if one.Items, err = r.items(rows); err != nil {
				return nil, err
			}
			if err := w.relate(one.Items, rows); err != nil {
				return nil, err
			}
		}
		related = append(related, one)
	}
	slices.SortFunc(related, func(a, b search.Related) int { return strings.Compare(a.Kind, b.Kind) })
	return related, nil
}

// passes reports whether paths continue after a row.
func (w *walker) passes(number uint32) bool {
	kind := w.kindOf(w.rows.at(number))
	return kind != "Node" && kind != "Channel"
}

// reach returns the rows that can be reached from the given rows, except the matching rows.
func (w *walker) reach(origins *roaring.Bitmap) (dense, error) {
	seen := w.dense(w.rows.len())
	reached := w.dense(w.rows.len())
	var level, next []uint32
	visited := 0
	edges := 0
	step := func(number uint32, last bool) {
		edges += len(w.adjacency.get(number)) + 1
		for _, e := range w.adjacency.get(number) {
			other := e.other()
			if seen.has(other) || !w.visible.has(other) {
				continue
			}
			seen.set(other)
			if !w.found.has(other) {
				reached.set(other)
			}
			if !last && w.passes(other) {
				next = append(next, other)
			}
		}
	}
	var failed error
	pay := func() error {
		if failed == nil {
			failed = errors.Join(w.spend(edges*edgeCost), w.pause())
			edges = 0
		}
		return failed
	}
	origins.Iterate(func(number uint32) bool {
		step(number, w.depth == 1)
		visited++
		return visited%checkEvery != 0 || pay() == nil
	})
	for i := 1; i < w.depth && len(next) > 0 && pay() == nil; i++ {
		level, next = next, level[:0]
		for j, number := range level {
			step(number, i == w.depth-1)
			if j%checkEvery == checkEvery-1 && pay() != nil {
				break
			}
		}
	}
	return reached, pay()
}

// byKind groups rows by their kind. If kinds is not empty, it omits all other kinds.
func (w *walker) byKind(reached dense, kinds []string) map[string][]uint32 {
	byTerm := map[uint32][]uint32{}
	reached.each(func(number uint32) {
		kind := w.rows.at(number).kind
		byTerm[kind] = append(byTerm[kind], number)
	})
	byKind := map[string][]uint32{}
	for term, rows := range byTerm {
		kind := ""
		if term != 0 {
			kind = w.terms.at(term).text
		}
		if len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) }) {
			continue
		}
		if had := byKind[kind]; had != nil {
			rows = slices.Concat(had, rows)
			slices.Sort(rows)
		}
		byKind[kind] = rows
	}
	return byKind
}

// relate sets the origins to which each item is related, by following edges back from the item.
func (w *walker) relate(items []search.Item, rows []uint32) error {
	names := map[uint32]string{}
	var to []uint32
	for i, number := range rows {
		if i%checkEvery == checkEvery-1 && w.pause() != nil {
			return w.ctx.Err()
		}
		var err error
		if to, err = w.originsAt(number, to[:0]); err != nil {
			return err
		}
		if err := w.hold(len(to) * relatedBytes); err != nil {
			return err
		}
		uids := make([]string, len(to))
		for j, match := range to {
			uid, known := names[match]
			if !known {
				uid = w.uid(match)
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
	if w.depth == 1 {
		if err := w.spend(len(w.adjacency.get(number)) * 2 * edgeCost); err != nil {
			return nil, err
		}
		for _, e := range w.adjacency.get(number) {
			if w.origins.has(e.other()) {
				to = append(to, e.other())
			}
		}
		slices.Sort(to)
		return slices.Compact(to), nil
	}
	seen := map[uint32]struct{}{number: {}}
	level := []uint32{number}
	for i := 0; i < w.depth && len(level) > 0; i++ {
		var next []uint32
		for _, from := range level {
			if err := w.spend((1 + len(w.adjacency.get(from))) * seenCost); err != nil {
				return nil, err
			}
			for _, e := range w.adjacency.get(from) {
				other := e.other()
				if _, was := seen[other]; was || !w.visible.has(other) {
					continue
				}
				seen[other] = struct{}{}
				if w.origins.has(other) {
					to = append(to, other)
				}
				if i+1 < w.depth && w.passes(other) {
					next = append(next, other)
				}
			}
		}
		level = next
	}
	slices.Sort(to)
	return to, nil
}
