package embedded

// table is a hash table of the numbers of rows or terms. The number 0xffffffff does not occur. It
// is shared and copied like a vector.
type table struct {
	// slots contains the buckets one after the other. A leaf contains several whole buckets. Each
	// change copies a leaf, so leaves are small.
	slots vector[slot]
	// mask is the number of buckets, a power of two, minus one.
	mask uint32
	// used is the number of slots that are not free, including removed slots.
	used, removed int
}

// bucketSize is the number of slots of a bucket, which is one line of the processor's cache.
const bucketSize = 8

// bucketIn returns a bucket from the leaf that contains it.
func bucketIn(leaf *[leafSize]slot, bucket uint32) []slot {
	first := bucket * bucketSize & (leafSize - 1)
	return leaf[first : first+bucketSize]
}

// bucket returns a bucket, which must not be changed, or nil if it was never set.
func (t *table) bucket(i uint32) []slot {
	if leaf := t.slots.leafOf(i * bucketSize); leaf != nil {
		return bucketIn(leaf, i)
	}
	return nil
}

// edit returns a bucket that the transaction may change.
func (t *table) edit(transaction uint64, i uint32) []slot {
	return bucketIn(t.slots.editLeaf(transaction, i*bucketSize), i)
}

// slot contains the number plus one, and the half of the hash that determines its bucket, so that
// the table can grow without computing hashes again.
type slot struct{ hash, number uint32 }

const (
	slotFree    = 0
	slotRemoved = ^uint32(0)
	tableMin    = 1 << 7
)

// find returns the number with the given hash for which same returns true.
func (t *table) find(hash uint64, same func(number uint32) bool) (uint32, bool) {
	if t.mask == 0 {
		return 0, false
	}
	short := uint32(hash >> 32)
	for i := short & t.mask; ; i = (i + 1) & t.mask {
		b := t.bucket(i)
		if b == nil {
			return 0, false
		}
		for j := range b {
			s := &b[j]
			if s.number == slotFree {
				return 0, false
			}
			if s.hash == short && s.number != slotRemoved && same(s.number-1) {
				return s.number - 1, true
			}
		}
	}
}

// insert adds a number, which must not be in the table yet.
func (t *table) insert(transaction, hash uint64, number uint32) {
	if t.mask == 0 || t.used > int(t.mask+1)*bucketSize/4*3 {
		t.rebuild(transaction, 2*(t.used-t.removed))
	}
	t.place(transaction, slot{hash: uint32(hash >> 32), number: number + 1})
}

func (t *table) place(transaction uint64, placed slot) {
	for i := placed.hash & t.mask; ; i = (i + 1) & t.mask {
		b := t.edit(transaction, i)
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

// rebuild gives the table more than a number of slots, and drops removed slots.
func (t *table) rebuild(transaction uint64, slots int) {
	size := uint32(tableMin)
	for int(size)*bucketSize <= slots {
		size *= 2
	}
	grown := table{mask: size - 1}
	t.slots.each(func(_ uint32, slots *[leafSize]slot) {
		for _, s := range slots {
			if s.number != slotFree && s.number != slotRemoved {
				grown.place(transaction, s)
			}
		}
	})
	*t = grown
}

func (t *table) remove(transaction, hash uint64, number uint32) {
	if t.mask == 0 {
		return
	}
	for i := uint32(hash>>32) & t.mask; ; i = (i + 1) & t.mask {
		b := t.bucket(i)
		if b == nil {
			return
		}
		for j := range b {
			switch b[j].number {
			case slotFree:
				return
			case number + 1:
				t.edit(transaction, i)[j] = slot{number: slotRemoved}
				t.removed++
				return
			}
		}
	}
}
