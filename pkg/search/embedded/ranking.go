package embedded

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// scopePlaces bounds the number of scopes whose places a ranking caches.
const scopePlaces = 32

// base contains all resources of one version in an order. It is immutable.
type base struct {
	rows []uint32
	// places caches the positions in rows of the rows of small scopes, by the IDs of scopes.
	places *lru.Cache
	adding sync.Mutex
}

func newBase(rows []uint32) *base { return &base{rows: rows, places: lru.New(scopePlaces)} }

// ranking is an order of all resources that is valid for a range of versions. It consists of a
// base, except the rows that have changed since then, and of these rows in their new positions.
type ranking struct {
	by       []search.Order
	base     *base
	from, to uint64
	// moves and touches are the numbers of the moves and touches that the ranking includes.
	moves, touches uint64
	// properties are the numbers that the properties of the order had. A property that was removed
	// gets another number.
	properties []uint32
	// stale contains the rows that have changed since the base.
	stale      dense
	staleCount int
	// fresh contains the existing stale rows, in order.
	fresh []placed
}

// placed is a row that comes directly before a position of the base, after all other rows before
// that position.
type placed struct{ row, before uint32 }

// touch is a change of a property of a row whose class and name stay the same.
type touch struct{ row, property uint32 }

// nextTouched returns the number of the next touch.
func (s *state) nextTouched() uint64 { return s.firstTouched + uint64(len(s.touched)) }

// newRanking ranks all resources of a state.
func (s *state) newRanking(by []search.Order, pause func() error) (*ranking, error) {
	rows, err := s.ranked(by, pause)
	if err != nil {
		return nil, err
	}
	return &ranking{
		by: by, base: newBase(rows), from: s.version, to: s.version, moves: s.nextMoved(), touches: s.nextTouched(),
		properties: s.orderedBy(by), stale: make(dense, (s.rows.len()+63)/64),
	}, nil
}

// orderedBy returns the numbers of the properties of an order.
func (s *state) orderedBy(by []search.Order) []uint32 {
	names := make([]string, len(by))
	for i := range by {
		names[i] = by[i].Property
	}
	return s.numbersOf(names...)
}

// behind returns the number of changes of a state that the ranking does not include, or MaxInt if
// the state no longer contains all of them.
func (k *ranking) behind(s *state) int {
	if k.moves < s.firstMoved || k.touches < s.firstTouched {
		return math.MaxInt
	}
	return int(s.nextMoved()-k.moves) + len(k.touched(s))
}

// touched returns the rows whose values of the properties of the order have changed.
func (k *ranking) touched(s *state) []uint32 {
	properties := slices.Concat(k.properties, s.orderedBy(k.by))
	var rows []uint32
	for _, t := range s.touched[k.touches-s.firstTouched:] {
		if slices.Contains(properties, t.property) {
			rows = append(rows, t.row)
		}
	}
	return rows
}

// changed returns the rows whose position may differ in a state, sorted and unique.
func (k *ranking) changed(s *state) []uint32 {
	rows := slices.Concat(s.moved[k.moves-s.firstMoved:], k.touched(s))
	slices.Sort(rows)
	return slices.Compact(rows)
}

// follow returns the ranking of a later state. The state must contain all changes since the
// ranking.
func (k *ranking) follow(s *state) *ranking {
	next := *k
	next.to, next.moves, next.touches, next.properties = s.version, s.nextMoved(), s.nextTouched(), s.orderedBy(k.by)
	changed := k.changed(s)
	if len(changed) == 0 {
		return &next
	}
	next.from = s.version
	next.stale = make(dense, max(len(k.stale), (s.rows.len()+63)/64))
	copy(next.stale, k.stale)
	o := &sorter{reader: &reader{state: s}, by: k.by}
	var added []sorted
	for _, row := range changed {
		if !next.stale.has(row) {
			next.stale.set(row)
			next.staleCount++
		}
		if r := s.rows.at(row); r != nil && r.exists() {
			added = append(added, o.keys(row))
		}
	}
	slices.SortFunc(added, func(a, b sorted) int { return o.compare(&a, &b) })
	next.fresh = make([]placed, 0, len(k.fresh)+len(added))
	for _, p := range k.fresh {
		if _, again := slices.BinarySearch(changed, p.row); !again {
			next.fresh = append(next.fresh, p)
		}
	}
	next.place(o, added)
	if next.staleCount > len(next.base.rows)/64+1024 {
		next.fold()
	}
	return &next
}

// place adds sorted rows to the fresh ones.
func (k *ranking) place(o *sorter, added []sorted) {
	old := k.fresh
	k.fresh = make([]placed, 0, len(old)+len(added))
	for i := range added {
		row := &added[i]
		isBehind := func(other uint32) bool { return o.compareRow(other, row) > 0 }
		at, _ := slices.BinarySearchFunc(old, row, func(p placed, _ *sorted) int {
			if isBehind(p.row) {
				return 1
			}
			return -1
		})
		k.fresh = append(k.fresh, old[:at]...)
		old = old[at:]
		before := k.search(isBehind)
		// Between stale rows of the base, the previously placed rows determine the position.
		if last := len(k.fresh) - 1; last >= 0 {
			before = max(before, k.fresh[last].before)
		}
		k.fresh = append(k.fresh, placed{row: row.row, before: before})
	}
	k.fresh = append(k.fresh, old...)
}

// search returns the position after the last row of the base that is not stale and for which
// reached is false.
func (k *ranking) search(reached func(row uint32) bool) uint32 {
	low, high := 0, len(k.base.rows)
	for low < high {
		middle := int(uint(low+high) >> 1)
		at := middle
		for at < high && k.stale.has(k.base.rows[at]) {
			at++
		}
		if at == high || reached(k.base.rows[at]) {
			high = middle
		} else {
			low = at + 1
		}
	}
	return uint32(low)
}

// fold creates a new base without stale rows.
func (k *ranking) fold() {
	rows := make([]uint32, 0, len(k.base.rows)+len(k.fresh))
	fresh := k.fresh
	for at, row := range k.base.rows {
		for len(fresh) > 0 && int(fresh[0].before) <= at {
			rows, fresh = append(rows, fresh[0].row), fresh[1:]
		}
		if !k.stale.has(row) {
			rows = append(rows, row)
		}
	}
	for _, p := range fresh {
		rows = append(rows, p.row)
	}
	k.base, k.fresh, k.staleCount = newBase(rows), nil, 0
	k.stale = make(dense, len(k.stale))
}

// placesOf returns the positions of the rows of a scope in the base, or nil if the scope contains
// most of the rows.
func (b *base) placesOf(scope uint64, rows *roaring.Bitmap) dense {
	if 2*rows.GetCardinality() > uint64(len(b.rows)) {
		return nil
	}
	if found, ok := b.places.Get(scope); ok {
		return found.(dense)
	}
	// Many requests may require the same positions at the same time.
	b.adding.Lock()
	defer b.adding.Unlock()
	if found, ok := b.places.Get(scope); ok {
		return found.(dense)
	}
	visible := make(dense, int(rows.Maximum())/64+1)
	rows.WriteDenseTo(visible)
	places := make(dense, (len(b.rows)+63)/64)
	for at, row := range b.rows {
		if visible.has(row) {
			places.set(uint32(at))
		}
	}
	b.places.Add(scope, places)
	return places
}

// pager collects the rows of a page.
type pager struct {
	found         dense
	offset, limit int
	rows          []uint32
}

// take adds a row if it matches. It returns false when the page and one additional row are
// complete.
func (p *pager) take(row uint32) bool {
	switch {
	case !p.found.has(row):
	case p.offset > 0:
		p.offset--
	default:
		p.rows = append(p.rows, row)
	}
	return len(p.rows) <= p.limit
}

// page returns a page of the matching rows, and reports whether more rows exist.
func (k *ranking) page(o *sorter, found *roaring.Bitmap, offset, limit int) ([]uint32, bool, error) {
	p := pager{found: o.denseOf(found), offset: offset, limit: limit}
	unchanged := o.denseOf(found)
	for i := range min(len(unchanged), len(k.stale)) {
		unchanged[i] &^= k.stale[i]
	}
	start, fresh := uint32(0), k.fresh
	if len(o.after.keys) > 0 {
		isAfter := func(row uint32) bool {
			keys := o.keys(row)
			return o.isAfter(&keys)
		}
		start = k.search(isAfter)
		first, _ := slices.BinarySearchFunc(fresh, true, func(f placed, _ bool) int {
			if isAfter(f.row) {
				return 1
			}
			return -1
		})
		fresh = fresh[first:]
	}
	visit := func(at uint32) bool {
		for len(fresh) > 0 && fresh[0].before <= at {
			row := fresh[0].row
			fresh = fresh[1:]
			if !p.take(row) {
				return false
			}
		}
		row := k.base.rows[at]
		return !unchanged.has(row) || p.take(row)
	}
	complete, err := k.visit(o.reader, start, visit)
	if err != nil {
		return nil, false, err
	}
	for !complete && len(fresh) > 0 {
		complete = !p.take(fresh[0].row)
		fresh = fresh[1:]
	}
	return p.rows[:min(len(p.rows), limit)], len(p.rows) > limit, nil
}

// visit calls f with the positions of the base, from start, at which rows of the reader's scope may
// be, until f returns false. It reports whether f returned false.
func (k *ranking) visit(r *reader, start uint32, f func(at uint32) bool) (ended bool, err error) {
	places := k.base.placesOf(r.scopeID, r.scope)
	if places == nil {
		for at := start; at < uint32(len(k.base.rows)); at++ {
			if !f(at) {
				return true, nil
			}
			if at%pauseRows == pauseRows-1 {
				if err := r.pause(); err != nil {
					return false, err
				}
			}
		}
		return false, nil
	}
	for i := int(start / 64); i < len(places); i++ {
		word := places[i]
		if i == int(start/64) {
			word &= ^uint64(0) << (start % 64)
		}
		for ; word != 0; word &= word - 1 {
			if !f(uint32(i*64 + bits.TrailingZeros64(word))) {
				return true, nil
			}
		}
		if i%(pauseRows/64) == pauseRows/64-1 {
			if err := r.pause(); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// visitCost is the cost of visiting a position, in nanoseconds, like rowCost.
const visitCost = 3

// rankingCost estimates the cost of finding the wanted number of a total number of rows in an order
// of all rows.
func (r *reader) rankingCost(wanted, total int) int {
	places := int(r.scope.GetCardinality())
	if all := coarse(r.visible); 2*places > all {
		places = all
	}
	return int(float64(places) * float64(min(wanted, total)) / float64(total) * visitCost)
}

// numbersOf returns the numbers of the given properties that exist.
func (s *state) numbersOf(names ...string) []uint32 {
	numbers := make([]uint32, 0, len(names))
	for _, name := range names {
		if id, known := s.propertyNames[name]; known {
			numbers = append(numbers, id)
		}
	}
	return numbers
}
