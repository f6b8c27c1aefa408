package embedded

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// sortKey is a value by which rows are sorted. Its order equals the order of query.CompareTexts.
type sortKey struct {
	missing bool
	rank    uint8
	number  float64
	at      time.Time
	text    string
}

const (
	rankNumber = iota
	rankTime
	rankText
)

func newSortKey(text string) sortKey {
	if number, is := query.ParseNumber(text); is {
		return sortKey{rank: rankNumber, number: number, text: text}
	}
	if at, is := query.ParseTime(text); is {
		return sortKey{rank: rankTime, at: at, text: text}
	}
	return sortKey{rank: rankText, text: text}
}

// compare compares two keys. A missing key comes last in both directions.
func (k *sortKey) compare(other *sortKey, descending bool) int {
	if k.missing || other.missing {
		switch {
		case k.missing && other.missing:
			return 0
		case k.missing:
			return 1
		default:
			return -1
		}
	}
	order := cmp.Compare(k.rank, other.rank)
	if order == 0 {
		switch k.rank {
		case rankNumber:
			order = cmp.Compare(k.number, other.number)
		case rankTime:
			order = k.at.Compare(other.at)
		default:
			order = strings.Compare(k.text, other.text)
		}
	}
	if descending {
		return -order
	}
	return order
}

// sortKey returns the key of a row for a property, which is the key of its first leaf.
func (s *state) sortKey(number uint32, name string) sortKey {
	r := s.rows.at(number)
	if name == query.Cluster {
		return newSortKey(s.clusterOf(r).name)
	}
	id, known := s.propertyNames[name]
	if !known {
		return sortKey{missing: true}
	}
	first := s.firstTerm(r.data, id)
	if first == 0 {
		return sortKey{missing: true}
	}
	return s.termKey(first)
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
	return sortKey{rank: rankText, text: t.text}
}

// sorted is a row with its sort keys.
type sorted struct {
	row  uint32
	keys []sortKey
}

// sorter sorts rows by properties, then by UID.
type sorter struct {
	*reader
	by []search.Order
	// after is the last row before the page, if the page is not the first.
	after *token
}

func (o *sorter) keys(row uint32) sorted {
	keys := make([]sortKey, len(o.by))
	for i := range o.by {
		keys[i] = o.sortKey(row, o.by[i].Property)
	}
	return sorted{row: row, keys: keys}
}

func (o *sorter) compare(a, b *sorted) int {
	for i := range o.by {
		if order := a.keys[i].compare(&b.keys[i], o.by[i].Descending); order != 0 {
			return order
		}
	}
	return o.compareUIDs(a.row, b.row)
}

// compareRow compares a row with the sort keys of another.
func (o *sorter) compareRow(row uint32, other *sorted) int {
	for i := range o.by {
		key := o.sortKey(row, o.by[i].Property)
		if order := key.compare(&other.keys[i], o.by[i].Descending); order != 0 {
			return order
		}
	}
	return o.compareUIDs(row, other.row)
}

// isAfter reports whether a row comes after the last row before the page.
func (o *sorter) isAfter(a *sorted) bool {
	if len(o.after.keys) == 0 {
		return true
	}
	for i := range o.by {
		if order := a.keys[i].compare(&o.after.keys[i], o.by[i].Descending); order != 0 {
			return order > 0
		}
	}
	return o.uid(a.row) > o.after.uid
}

// The costs of reading a row and a term, in nanoseconds.
const (
	rowCost  = 400
	termCost = 60
	// sortedBytes is the memory for a row that is sorted. sortKeyBytes is the memory for each of
	// its keys.
	sortedBytes, sortKeyBytes = 32, int(unsafe.Sizeof(sortKey{}))
)

// ordered returns a page of rows, and reports whether more rows exist. It selects the fastest
// method: a ranking, a walk through the terms of the first property, or sorting the matching rows.
func (r *reader) ordered(kept *rankings, found *roaring.Bitmap, by []search.Order, after *token, offset, limit int) ([]uint32, bool, error) {
	o := sorter{reader: r, by: by, after: after}
	total := int(found.GetCardinality())
	if total == 0 {
		return nil, false, nil
	}
	wanted := min(offset, total) + min(limit, total)
	// The additional row shows whether more rows exist.
	wanted = min(wanted, total) + 1
	cost := total * rowCost
	walked := r.walkable(by[0].Property)
	if walked != nil {
		if c := o.walkCost(walked, wanted, total); c < cost {
			cost = c
		} else {
			walked = nil
		}
	}
	if c := r.rankingCost(wanted, total); kept != nil && len(by) <= rankedOrders && c < cost {
		if err := r.spend(c); err != nil {
			return nil, false, err
		}
		k, err := kept.of(r, by)
		if err != nil {
			return nil, false, err
		}
		if k != nil {
			return k.page(&o, found, offset, limit)
		}
	}
	// The keys of all properties are read only for rows of the page.
	if err := r.spend(cost + min(wanted, total)*(len(by)-1)*rowCost); err != nil {
		return nil, false, err
	}
	if err := r.hold(min(wanted, total) * (sortedBytes + len(by)*sortKeyBytes)); err != nil {
		return nil, false, err
	}
	var top []sorted
	var more bool
	if walked != nil {
		var err error
		if top, more, err = o.walk(walked, found, offset, limit); err != nil {
			return nil, false, err
		}
	} else {
		t := o.top(wanted)
		if err := t.offerAll(found); err != nil {
			return nil, false, err
		}
		top = t.done()
		top = top[min(offset, len(top)):]
		more = len(top) > limit
		top = top[:min(limit, len(top))]
	}
	rows := make([]uint32, len(top))
	for i := range top {
		rows[i] = top[i].row
	}
	return rows, more, nil
}

// walkable returns a property if the order of its terms equals the order of rows. Otherwise it
// returns nil.
func (s *state) walkable(name string) *property {
	id, known := s.propertyNames[name]
	if !known || name == query.Cluster {
		return nil
	}
	if p := s.properties.get(id); p.inKeyOrder() {
		return p
	}
	return nil
}

// walkCost estimates the cost of walking through terms until the wanted number of a total number of
// rows is found.
func (o *sorter) walkCost(p *property, wanted, total int) int {
	terms := rounded(p.terms())
	visited := int(min(float64(terms), float64(terms)*float64(wanted)/float64(total)))
	// All rows with the last value are read.
	same := coarse(o.rows.len()) / terms
	return visited*termCost + min(total, wanted+same)*rowCost
}

// walk returns a page of rows in the order of the terms of the first property, and reports whether
// more rows exist.
func (o *sorter) walk(p *property, found *roaring.Bitmap, offset, limit int) ([]sorted, bool, error) {
	w := walk{sorter: o, property: p, found: found, dense: o.denseOf(found), offset: offset, limit: limit}
	w.distinct = p.distinct()
	at := o.start(p)
	for steps := 0; p.order.valid(at) && !w.full(); {
		if steps++; steps%checkEvery == 0 && o.pause() != nil {
			return nil, false, o.ctx.Err()
		}
		at = w.group(at)
	}
	if !w.full() {
		w.take(o.without(p, found))
	}
	more := len(w.rows) > limit
	return w.rows[:min(limit, len(w.rows))], more, o.ctx.Err()
}

// walk collects rows by walking through the terms of a property.
type walk struct {
	*sorter
	property *property
	found    *roaring.Bitmap
	dense    dense
	// distinct is true if no two terms have equal sort keys.
	distinct bool
	// offset is the remaining number of rows to skip.
	offset, limit int
	rows          []sorted
}

// full reports whether the page and one additional row are complete.
func (w *walk) full() bool { return len(w.rows) > w.limit }

func (w *walk) advance(at position) position {
	if w.by[0].Descending {
		return w.property.order.previous(at)
	}
	return w.property.order.next(at)
}

// group takes the rows of the terms with the sort key of a position, and returns the position after
// these terms.
func (w *walk) group(at position) position {
	number := w.property.order.term(at)
	t := w.terms.at(number)
	next := w.advance(at)
	if w.distinct && t.postings.many == nil {
		if row := t.postings.one - 1; w.dense.has(row) {
			w.single(row)
		}
		return next
	}
	rows := union{reader: w.reader}
	w.leading(t, number, &rows)
	if !w.distinct {
		first := w.termKey(number)
		for w.property.order.valid(next) {
			other := w.property.order.term(next)
			if key := w.termKey(other); first.compare(&key, false) != 0 {
				break
			}
			w.leading(w.terms.at(other), other, &rows)
			next = w.advance(next)
		}
	}
	w.take(rows.bitmap())
	return next
}

// single takes the only row of a group.
func (w *walk) single(row uint32) {
	if len(w.after.keys) > 0 {
		if key := w.keys(row); !w.isAfter(&key) {
			return
		}
	}
	if w.offset > 0 {
		w.offset--
		return
	}
	w.rows = append(w.rows, sorted{row: row})
}

// leading adds the rows of a term. If the term belongs to a map or list, it adds only rows whose
// first term it is.
func (w *walk) leading(t *term, number uint32, rows *union) {
	f := w.fields.get(t.info().field())
	if f.kind < query.Map {
		rows.add(&t.postings)
		return
	}
	t.postings.each(func(row uint32) bool {
		if w.dense.has(row) && w.firstTerm(w.rowData(row), f.property) == number {
			rows.add(&postings{one: row + 1})
		}
		return true
	})
}

func (s *state) rowData(row uint32) string { return s.rows.at(row).data }

// take takes the matching rows of a group.
func (w *walk) take(group *roaring.Bitmap) {
	group = roaring.And(group, w.found)
	count := int(group.GetCardinality())
	if count == 0 {
		return
	}
	if len(w.after.keys) == 0 && w.offset >= count {
		w.offset -= count
		return
	}
	top := w.top(w.offset + w.limit + 1 - len(w.rows))
	if top.offerAll(group) != nil {
		return
	}
	taken := top.done()
	passed := min(w.offset, len(taken))
	w.offset -= passed
	w.rows = append(w.rows, taken[passed:]...)
}

// start returns the first position that may contain rows of the page.
func (o *sorter) start(p *property) position {
	last := p.order.previous(p.order.end())
	if len(o.after.keys) == 0 {
		if o.by[0].Descending {
			return last
		}
		return position{}
	}
	key := &o.after.keys[0]
	if key.missing {
		return p.order.end()
	}
	if !o.by[0].Descending {
		return p.order.search(func(number uint32) bool {
			k := o.termKey(number)
			return k.compare(key, false) >= 0
		})
	}
	return p.order.previous(p.order.search(func(number uint32) bool {
		k := o.termKey(number)
		return k.compare(key, false) > 0
	}))
}

// without returns the matching rows that do not have a property, or have an empty one.
func (o *sorter) without(p *property, found *roaring.Bitmap) *roaring.Bitmap {
	rest := o.denseOf(found)
	for i := range p.variants {
		rest.removeRows(&p.variants[i])
	}
	p.empties.each(func(row uint32) bool {
		if found.Contains(row) {
			rest.set(row)
		}
		return true
	})
	return roaring.FromDense(rest, true)
}

// topRows collects the first of the offered rows, in a heap with the last of them on top.
type topRows struct {
	*sorter
	limit int
	rows  []sorted
}

func (o *sorter) top(limit int) *topRows { return &topRows{sorter: o, limit: limit} }

func (t *topRows) Len() int           { return len(t.rows) }
func (t *topRows) Less(i, j int) bool { return t.compare(&t.rows[i], &t.rows[j]) > 0 }
func (t *topRows) Swap(i, j int)      { t.rows[i], t.rows[j] = t.rows[j], t.rows[i] }
func (t *topRows) Push(x any)         { t.rows = append(t.rows, x.(sorted)) }
func (t *topRows) Pop() any {
	last := t.rows[len(t.rows)-1]
	t.rows = t.rows[:len(t.rows)-1]
	return last
}

// offer adds a row if it is one of the first rows.
func (t *topRows) offer(row uint32) {
	candidate := t.keys(row)
	switch {
	case !t.isAfter(&candidate):
	case len(t.rows) < t.limit:
		t.rows = append(t.rows, candidate)
		if len(t.rows) == t.limit {
			heap.Init(t)
		}
	case t.compare(&candidate, &t.rows[0]) < 0:
		t.rows[0] = candidate
		heap.Fix(t, 0)
	}
}

// offerAll offers all rows of a set.
func (t *topRows) offerAll(rows *roaring.Bitmap) error {
	offered := 0
	rows.Iterate(func(row uint32) bool {
		t.offer(row)
		offered++
		return offered%checkEvery != 0 || t.pause() == nil
	})
	return t.ctx.Err()
}

// done returns the collected rows in order.
func (t *topRows) done() []sorted {
	slices.SortFunc(t.rows, func(a, b sorted) int { return t.compare(&a, &b) })
	return t.rows
}
