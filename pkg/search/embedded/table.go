package embedded

// table finds numbers by a hash: of rows or terms, which are never 0xffffffff. It
// is shared and copied as a vector is.
type table struct {
	buckets vector[bucket]
	// mask is one less than the number of buckets, a power of two.
	mask uint32
	// used are the slots that are not free, removed ones included.
	used, removed int
}

// bucket has slots that are looked at together: a line of the processor's cache.
type bucket [bucketSize]slot

const bucketSize = 8

// slot has the number plus one, and the half of the hash that decides where it is, so that a
// larger table is made without the texts.
type slot struct{ hash, number uint32 }

const (
	slotFree    = 0
	slotRemoved = ^uint32(0)
	tableMin    = 1 << 7
)

// find returns the number with a hash that is the one looked for.
func (t *table) find(hash uint64, is func(number uint32) bool) (uint32, bool) {
	if t.mask == 0 {
		return 0, false
	}
	short := uint32(hash >> 32)
	for i := short & t.mask; ; i = (i + 1) & t.mask {
		b := t.buckets.at(i)
		if b == nil {
			return 0, false
		}
		for j := range b {
			s := &b[j]
			if s.number == slotFree {
				return 0, false
			}
			if s.hash == short && s.number != slotRemoved && is(s.number-1) {
				return s.number - 1, true
			}
		}
	}
}

// insert adds a number that is not in the table.
func (t *table) insert(transaction, hash uint64, number uint32) {
	if t.mask == 0 || t.used > int(t.mask+1)*bucketSize/4*3 {
		t.rebuild(transaction)
	}
	t.place(transaction, slot{hash: uint32(hash >> 32), number: number + 1})
}

func (t *table) place(transaction uint64, placed slot) {
	for i := placed.hash & t.mask; ; i = (i + 1) & t.mask {
		b := t.buckets.edit(transaction, i)
		for j := range b {
			s := &b[j]
			if s.number != slotFree && s.number != slotRemoved {
				continue
			}
			if s.number == slotFree {
				t.used++
			} else {
				t.removed--
			}
			*s = placed
			return
		}
	}
}

// rebuild makes room for as many again.
func (t *table) rebuild(transaction uint64) {
	size := uint32(tableMin)
	for live := t.used - t.removed; int(size)*bucketSize < live*2+1; {
		size *= 2
	}
	grown := table{mask: size - 1}
	for i := range uint32(t.buckets.len()) {
		b := t.buckets.at(i)
		for j := range bucketSize {
			if b != nil && b[j].number != slotFree && b[j].number != slotRemoved {
				grown.place(transaction, b[j])
			}
		}
	}
	*t = grown
}

// remove removes a number.
func (t *table) remove(transaction, hash uint64, number uint32) {
	if t.mask == 0 {
		return
	}
	for i := uint32(hash>>32) & t.mask; ; i = (i + 1) & t.mask {
		b := t.buckets.at(i)
		if b == nil {
			return
		}
		for j := range b {
			switch b[j].number {
			case slotFree:
				return
			case number + 1:
				t.buckets.edit(transaction, i)[j] = slot{number: slotRemoved}
				t.removed++
				return
			}
		}
	}
}
