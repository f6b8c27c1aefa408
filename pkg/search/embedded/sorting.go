package embedded

import (
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// The costs of reading a row and a term, in nanoseconds.
const (
	rowCost  = 400
	termCost = 60
	// sortedBytes is the memory for a row that is sorted. sortKeyBytes is the memory for each of its keys.
	sortedBytes, sortKeyBytes = 32, 64
)

// sorter collects the rows of a page in an order. There are two methods. A walk through the terms of the first property, or
// through the clusters, divides the rows into groups with equal values, which are sorted by the other properties, until
// the page is full. So the page of a large fleet takes little more than the page. Few rows are sorted by their keys, because
// a walk would pass many terms for each of them, and so are rows whose terms are in another order.
type sorter struct {
	reader *reader
	// offset is the number of rows to skip. limit is the number of rows of the page.
	offset, limit int
	rows          []uint32
}

// ordered returns a page of rows, and reports whether more rows exist. after is the position of the last row before the
// page, or nil.
func (r *reader) ordered(found *roaring.Bitmap, by []search.Order, after *token, offset, limit int) ([]uint32, bool, error) {
	total := int(found.GetCardinality())
	o := &sorter{reader: r, offset: min(offset, total), limit: min(limit, total)}
	if err := o.add(found, by, after); err != nil {
		return nil, false, err
	}
	return o.rows[:min(len(o.rows), o.limit)], len(o.rows) > o.limit, nil
}

// full reports whether the page and one additional row, which shows that more rows exist, are complete.
func (o *sorter) full() bool { return len(o.rows) > o.limit }

// wanted returns the number of rows that are still needed, including those to skip.
func (o *sorter) wanted() int { return o.offset + o.limit + 1 - len(o.rows) }

// add adds the rows of a set that come after a position, sorted by properties and then by UID.
func (o *sorter) add(rows *roaring.Bitmap, by []search.Order, after *token) error {
	count := int(rows.GetCardinality())
	switch {
	case count == 0 || o.full():
		return nil
	case after == nil && o.offset >= count:
		o.offset -= count
		return nil
	case len(by) > 0 && by[0].Property == query.Cluster:
		if coarse(len(o.reader.state.clusters))*termCost < count*rowCost {
			return o.byCluster(rows, by, after)
		}
	case len(by) > 0 && o.wanted() < count:
		if p := o.reader.walkable(by[0].Property); p != nil && o.costOfWalk(p, count) < count*rowCost {
			if cost, few := costOfTerms(p, count*rowCost); few {
				return o.walk(p, rows, by, after, cost)
			}
		}
	}
	return o.sort(rows, by, after)
}

// byCluster adds rows in the order of the names of their clusters.
func (o *sorter) byCluster(rows *roaring.Bitmap, by []search.Order, after *token) error {
	r := o.reader
	if err := r.spend(coarse(len(r.state.clusters)) * termCost); err != nil {
		return err
	}
	keys := make([]sortKey, len(r.state.clusters))
	order := make([]int, len(r.state.clusters))
	for i, c := range r.state.clusters {
		keys[i], order[i] = newSortKey(c.name), i
	}
	slices.SortFunc(order, func(a, b int) int { return keys[a].compare(&keys[b], by[0].Descending) })
	for len(order) > 0 && !o.full() {
		key, group := &keys[order[0]], union{reader: r}
		for len(order) > 0 && key.compare(&keys[order[0]], false) == 0 {
			group.add(&r.state.clusters[order[0]].rows)
			order = order[1:]
		}
		err := r.pause()
		if err == nil && (after == nil || key.compare(&after.keys[0], by[0].Descending) >= 0) {
			err = o.add(roaring.And(group.bitmap(), rows), by[1:], after.within(key))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkable returns a property if the order of its terms equals the order of rows, and a resource in the scope has it.
// Otherwise it returns nil.
func (r *reader) walkable(name string) *property {
	if p := r.inScope(name); p != nil && p.inKeyOrder() {
		return p
	}
	return nil
}

// termsOfWalk estimates the number of terms that a walk visits to find rows in a set of count rows.
func (o *sorter) termsOfWalk(p *property, count int) int {
	terms := coarse(p.terms())
	return int(min(float64(terms), float64(terms)*float64(o.wanted())/float64(count)))
}

// costOfWalk estimates the cost of a walk.
func (o *sorter) costOfWalk(p *property, count int) int {
	// All rows with the last value are read.
	same := coarse(o.reader.state.rows.len()) / coarse(p.terms())
	return o.termsOfWalk(p, count)*termCost + min(count, o.wanted()+same)*rowCost
}

// walk is a walk through the terms of the first of some properties.
type walk struct {
	sorter   *sorter
	property *property
	rows     *roaring.Bitmap
	dense    dense
	by       []search.Order
	after    *token
	// group contains the rows with the current value.
	group []uint32
}

// walk adds rows in the order of the terms of a property.
func (o *sorter) walk(p *property, rows *roaring.Bitmap, by []search.Order, after *token, cost int) error {
	r := o.reader
	if err := r.spend(cost); err != nil {
		return err
	}
	w := &walk{sorter: o, property: p, rows: rows, dense: r.denseOf(rows), by: by, after: after}
	at := w.start()
	for steps := 1; p.order.valid(at) && !o.full(); steps++ {
		if steps%checkEvery == 0 {
			if err := r.pause(); err != nil {
				return err
			}
		}
		var err error
		if at, err = w.next(at); err != nil {
			return err
		}
	}
	if o.full() {
		return nil
	}
	rest, err := w.without()
	if err != nil {
		return err
	}
	return o.add(rest, by[1:], after.within(&sortKey{missing: true}))
}

// start returns the first position that may contain rows of the page.
func (w *walk) start() position {
	order, descending := w.property.order, w.by[0].Descending
	last := order.previous(order.end())
	switch {
	case w.after == nil && descending:
		return last
	case w.after == nil:
		return position{}
	case w.after.keys[0].missing:
		return order.end()
	}
	key := &w.after.keys[0]
	reached := order.search(func(number uint32) bool {
		k := w.sorter.reader.state.termKey(number)
		c := k.compare(key, false)
		return c > 0 || c == 0 && !descending
	})
	if descending {
		return order.previous(reached)
	}
	return reached
}

func (w *walk) advance(at position) position {
	if w.by[0].Descending {
		return w.property.order.previous(at)
	}
	return w.property.order.next(at)
}

// next adds the rows of the terms with the sort key of a position, and returns the position after these terms.
func (w *walk) next(at position) (position, error) {
	o, order := w.sorter, w.property.order
	w.group = w.group[:0]
	first := order.term(at)
	for order.valid(at) && o.reader.state.sameKey(first, order.term(at)) {
		w.lead(order.term(at))
		at = w.advance(at)
	}
	key := o.reader.state.termKey(first)
	after := w.after.within(&key)
	switch {
	case len(w.group) == 0:
		return at, nil
	case len(w.group) > 1 || after != nil:
		return at, o.add(roaring.BitmapOf(w.group...), w.by[1:], after)
	case o.offset > 0:
		o.offset--
	default:
		o.rows = append(o.rows, w.group[0])
	}
	return at, o.reader.spend(rowCost)
}

// lead adds the rows of a term to the group. If the term belongs to a map or list, it adds only rows whose first term it is.
func (w *walk) lead(number uint32) {
	r := w.sorter.reader
	t := r.state.terms.at(number)
	f := r.state.fields.get(t.info().field())
	t.postings.each(func(row uint32) bool {
		if w.dense.has(row) && (f.kind < query.Map || r.state.firstTerm(r.state.rows.at(row).data, f.property) == number) {
			w.group = append(w.group, row)
		}
		return true
	})
}

// without returns the rows that do not have the property, or have an empty one.
func (w *walk) without() (*roaring.Bitmap, error) {
	r := w.sorter.reader
	id := r.state.propertyNames[w.property.name]
	rest := r.denseOf(w.rows)
	for i := range w.property.variants {
		rows := &w.property.variants[i]
		if kind := query.Type(i); kind != query.Map && kind != query.List {
			rest.removeRows(rows)
			continue
		}
		own := roaring.And(rows.asBitmap(), w.rows)
		err := r.spend(int(own.GetCardinality()) * propertyCost)
		if err == nil {
			err = r.each(own, func(row uint32) {
				if r.state.firstTerm(r.state.rows.at(row).data, id) != 0 {
					rest.clear(row)
				}
			})
		}
		if err != nil {
			return nil, err
		}
	}
	return r.bitmap(rest), nil
}

// sort adds rows by reading their sort keys.
func (o *sorter) sort(rows *roaring.Bitmap, by []search.Order, after *token) error {
	r := o.reader
	count := int(rows.GetCardinality())
	wanted := min(o.wanted(), count)
	// The keys of further properties are read only for rows of the page, and for rows with equal values.
	if err := r.spend(count*rowCost + wanted*max(0, len(by)-1)*rowCost); err != nil {
		return err
	}
	if err := r.hold(min(2*wanted, count) * (sortedBytes + len(by)*sortKeyBytes)); err != nil {
		return err
	}
	top := &topRows{reader: r, by: by, after: after, limit: wanted, keys: make([]sortKey, 0, len(by))}
	if err := r.each(rows, top.offer); err != nil {
		return err
	}
	top.trim()
	passed := min(o.offset, len(top.rows))
	o.offset -= passed
	for _, row := range top.rows[passed:] {
		o.rows = append(o.rows, row.row)
	}
	return nil
}

// sorted is a row with its sort keys.
type sorted struct {
	row  uint32
	keys []sortKey
}

// topRows collects the first of the offered rows.
type topRows struct {
	reader *reader
	by     []search.Order
	after  *token
	limit  int
	// keys is a buffer for the keys of a row.
	keys []sortKey
	// rows are sorted from time to time, and the rows after the limit removed. last is then the last of them.
	rows []sorted
	last *sorted
}

// trim sorts the rows, and removes the rows after the limit.
func (t *topRows) trim() {
	slices.SortFunc(t.rows, func(a, b sorted) int { return t.compare(&a, &b) })
	if len(t.rows) >= t.limit {
		t.rows = t.rows[:t.limit]
		t.last = &t.rows[t.limit-1]
	}
}

func (t *topRows) compare(a, b *sorted) int {
	for i := range t.by {
		if order := a.keys[i].compare(&b.keys[i], t.by[i].Descending); order != 0 {
			return order
		}
	}
	return t.reader.state.compareUIDs(a.row, b.row)
}

// isAfter reports whether a row comes after the last row before the page.
func (t *topRows) isAfter(row *sorted) bool {
	if t.after == nil {
		return true
	}
	for i := range t.by {
		if order := row.keys[i].compare(&t.after.keys[i], t.by[i].Descending); order != 0 {
			return order > 0
		}
	}
	return t.reader.state.uid(row.row) > t.after.uid
}

// offer adds a row if it can be one of the first rows.
func (t *topRows) offer(row uint32) {
	candidate := sorted{row: row, keys: t.keys[:0]}
	for i, order := range t.by {
		candidate.keys = append(candidate.keys, t.reader.state.sortKey(row, order.Property))
		if i == 0 && t.last != nil && candidate.keys[0].compare(&t.last.keys[0], order.Descending) > 0 {
			return
		}
	}
	if !t.isAfter(&candidate) || t.last != nil && t.compare(&candidate, t.last) >= 0 {
		return
	}
	candidate.keys = slices.Clone(candidate.keys)
	if t.rows = append(t.rows, candidate); len(t.rows) >= 2*t.limit {
		t.trim()
	}
}
