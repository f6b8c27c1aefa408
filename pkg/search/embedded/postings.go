package embedded

import (
	"math/bits"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

const (
	// Up to listLimit rows are always a list. Up to listMost rows are a list if a list is smaller
	// than a bitmap.
	listLimit = 64
	listMost  = 1024
	// listAgain is the number of rows at which a bitmap becomes a list again.
	listAgain = 32
	// blockRows is the number of rows for which a list takes as much memory as a block of a bitmap.
	blockRows = 25
)

// staysList reports whether count rows, from first to last, should be kept as a list.
func staysList(count int, first, last uint32) bool {
	blocks := int(last>>16-first>>16) + 1
	return count <= listLimit || count <= listMost && count <= blockRows*blocks
}

// postings is a set of rows, or of terms for a trigram. Most sets contain a single row, which is
// stored inline. The zero value is empty, so the row is stored plus one.
//
// Bitmaps are shared copy-on-write between states: a transaction marks the containers of bitmaps
// that other goroutines read. Operations of roaring that may share containers read these marks, so
// readers must not use them (Or, Xor, AndNot of two bitmaps, Clone). And, AndCardinality,
// Intersects, Contains, iterators, and AndNot in place do not read the marks.
type postings struct {
	many   *postingList
	single uint32
	// info belongs to a term. It is stored here because it takes no additional memory.
	info termInfo
}

// postingList contains two or more rows, as a sorted list or a bitmap.
type postingList struct {
	owner  uint64
	list   []uint32
	bitmap *roaring.Bitmap
}

func (s *postings) empty() bool { return s.many == nil && s.single == 0 }

func (s *postings) count() int {
	switch {
	case s.many == nil:
		return int(min(s.single, 1))
	case s.many.bitmap != nil:
		return int(s.many.bitmap.GetCardinality())
	default:
		return len(s.many.list)
	}
}

func (s *postings) contains(row uint32) bool {
	switch {
	case s.many == nil:
		return s.single == row+1
	case s.many.bitmap != nil:
		return s.many.bitmap.Contains(row)
	default:
		_, found := slices.BinarySearch(s.many.list, row)
		return found
	}
}

// own returns the list. It copies the list first, unless the transaction is allowed to change it.
func (s *postings) own(transaction uint64) *postingList {
	p := s.many
	if p.owner == transaction {
		return p
	}
	owned := &postingList{owner: transaction}
	if p.bitmap != nil {
		owned.bitmap = p.bitmap.Clone()
	} else {
		owned.list = append(make([]uint32, 0, len(p.list)+1), p.list...)
	}
	s.many = owned
	return owned
}

func (s *postings) add(transaction uint64, row uint32) {
	if s.many == nil {
		switch s.single {
		case row + 1:
		case 0:
			s.single = row + 1
		default:
			other := s.single - 1
			s.many = &postingList{owner: transaction, list: []uint32{min(row, other), max(row, other)}}
			s.single = 0
		}
		return
	}
	p := s.many
	if p.bitmap != nil {
		if p.owner == transaction || !p.bitmap.Contains(row) {
			s.own(transaction).bitmap.Add(row)
		}
		return
	}
	at, found := len(p.list), false
	if p.list[at-1] >= row {
		if at, found = slices.BinarySearch(p.list, row); found {
			return
		}
	}
	p = s.own(transaction)
	p.list = slices.Insert(p.list, at, row)
	if !staysList(len(p.list), p.list[0], p.list[len(p.list)-1]) {
		p.bitmap = roaring.New()
		p.bitmap.SetCopyOnWrite(true)
		p.bitmap.AddMany(p.list)
		p.list = nil
	}
}

// addMany adds rows. The rows must be sorted.
func (s *postings) addMany(transaction uint64, rows []uint32) {
	for i, row := range rows {
		if s.many != nil && s.many.bitmap != nil {
			s.own(transaction).bitmap.AddMany(rows[i:])
			return
		}
		s.add(transaction, row)
	}
}

func (s *postings) remove(transaction uint64, row uint32) {
	if s.many == nil {
		if s.single == row+1 {
			s.single = 0
		}
		return
	}
	if !s.contains(row) {
		return
	}
	p := s.own(transaction)
	if p.bitmap != nil {
		p.bitmap.Remove(row)
		if p.bitmap.GetCardinality() <= listAgain {
			p.list, p.bitmap = p.bitmap.ToArray(), nil
		}
		return
	}
	at, _ := slices.BinarySearch(p.list, row)
	p.list = slices.Delete(p.list, at, at+1)
	if len(p.list) == 1 {
		s.single, s.many = p.list[0]+1, nil
	}
}

// each calls f for each row, in order, until f returns false.
func (s *postings) each(f func(row uint32) bool) {
	switch {
	case s.many == nil:
		if s.single > 0 {
			f(s.single - 1)
		}
	case s.many.bitmap != nil:
		s.many.bitmap.Iterate(f)
	default:
		for _, row := range s.many.list {
			if !f(row) {
				return
			}
		}
	}
}

// asBitmap returns the set as a bitmap, which must not be changed.
func (s *postings) asBitmap() *roaring.Bitmap {
	switch {
	case s.many == nil && s.single == 0:
		return roaring.New()
	case s.many == nil:
		return roaring.BitmapOf(s.single - 1)
	case s.many.bitmap != nil:
		return s.many.bitmap
	default:
		return roaring.BitmapOf(s.many.list...)
	}
}

// countIn returns the number of rows of the set that are in a selection.
func (s *postings) countIn(found *selection) int {
	switch {
	case s.many == nil:
		if s.single > 0 && found.dense.has(s.single-1) {
			return 1
		}
		return 0
	case s.many.bitmap != nil:
		return int(s.many.bitmap.AndCardinality(found.bitmap))
	default:
		n := 0
		for _, row := range s.many.list {
			if found.dense.has(row) {
				n++
			}
		}
		return n
	}
}

// dense is a set of rows as an array of bits.
type dense []uint64

func (d dense) has(row uint32) bool {
	word := row >> 6
	return word < uint32(len(d)) && d[word]>>(row&63)&1 != 0
}

func (d dense) set(row uint32)   { d[row>>6] |= 1 << (row & 63) }
func (d dense) clear(row uint32) { d[row>>6] &^= 1 << (row & 63) }

// each calls f for each row, in order.
func (d dense) each(f func(row uint32)) {
	for i, word := range d {
		for word != 0 {
			f(uint32(i<<6 + bits.TrailingZeros64(word)))
			word &= word - 1
		}
	}
}

// addRows adds postings. spare must be empty and of the same length, and is empty again afterwards.
// If spare is nil, large sets take longer.
func (d dense) addRows(s *postings, spare dense) {
	switch {
	case s.many == nil:
		if s.single > 0 {
			d.set(s.single - 1)
		}
	case s.many.bitmap != nil:
		d.addBitmap(s.many.bitmap, spare)
	default:
		for _, row := range s.many.list {
			d.set(row)
		}
	}
}

func (d dense) addBitmap(b *roaring.Bitmap, spare dense) {
	if spare != nil && b.GetCardinality() > uint64(len(d)/2) {
		b.WriteDenseTo(spare)
		for i, word := range spare {
			d[i] |= word
		}
		clear(spare)
		return
	}
	var buffer [512]uint32
	rows := b.ManyIterator()
	for n := rows.NextMany(buffer[:]); n > 0; n = rows.NextMany(buffer[:]) {
		for _, row := range buffer[:n] {
			d.set(row)
		}
	}
}

func (d dense) removeRows(s *postings) {
	s.each(func(row uint32) bool {
		d.clear(row)
		return true
	})
}
