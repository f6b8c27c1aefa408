package embedded

import "slices"

// pending are rows or terms that are yet to be added to rowsets, each a key of the set
// and a number in one. It is much quicker to add many to a set at a time.
type pending struct {
	pairs []uint64
	// spare is as large, or nothing.
	spare []uint64
	// unsorted is true if the numbers of the pairs do not only grow.
	unsorted bool
}

const (
	// pendingLimit bounds the memory of pairs.
	pendingLimit = 1 << 21
	// directLimit is how many pairs are not worth sorting by digits.
	directLimit = 1 << 10
	digitBits   = 11
	// keptPairs bounds the memory of pairs that is kept for the next transaction.
	keptPairs = 1 << 17
)

func (p *pending) add(key, number uint32) {
	if n := len(p.pairs); n > 0 && uint32(p.pairs[n-1]) > number {
		p.unsorted = true
	}
	p.pairs = append(p.pairs, uint64(key)<<32|uint64(number))
}

func (p *pending) full() bool { return len(p.pairs) >= pendingLimit }

// flush calls add with each key and its numbers in order, and is empty then.
func (p *pending) flush(add func(key uint32, numbers []uint32)) {
	if len(p.pairs) == 0 {
		return
	}
	if p.unsorted || len(p.pairs) < directLimit {
		slices.Sort(p.pairs)
	} else {
		p.sortByKey()
	}
	var numbers []uint32
	for i := 0; i < len(p.pairs); {
		key := uint32(p.pairs[i] >> 32)
		numbers = numbers[:0]
		for ; i < len(p.pairs) && uint32(p.pairs[i]>>32) == key; i++ {
			if number := uint32(p.pairs[i]); len(numbers) == 0 || numbers[len(numbers)-1] != number {
				numbers = append(numbers, number)
			}
		}
		add(key, numbers)
	}
	p.pairs, p.unsorted = p.pairs[:0], false
}

// shrink gives up memory that only large transactions need.
func (p *pending) shrink() {
	if cap(p.pairs) > keptPairs {
		p.pairs = nil
	}
	if cap(p.spare) > keptPairs {
		p.spare = nil
	}
}

// sortByKey sorts by the keys, digit by digit, and keeps the order of the numbers.
func (p *pending) sortByKey() {
	var highest uint64
	for _, pair := range p.pairs {
		highest |= pair
	}
	if cap(p.spare) < len(p.pairs) {
		p.spare = make([]uint64, 0, cap(p.pairs))
	}
	from, to := p.pairs, p.spare[:len(p.pairs)]
	for shift := 32; highest>>shift != 0 && shift < 64; shift += digitBits {
		var starts [1 << digitBits]int
		for _, pair := range from {
			starts[pair>>shift&(1<<digitBits-1)]++
		}
		sum := 0
		for i, n := range starts {
			starts[i] = sum
			sum += n
		}
		for _, pair := range from {
			digit := pair >> shift & (1<<digitBits - 1)
			to[starts[digit]] = pair
			starts[digit]++
		}
		from, to = to, from
	}
	p.pairs, p.spare = from, to
}

// flushRows adds what is pending to the rows of terms and variants.
func (t *transaction) flushRows() {
	t.termRows.flush(func(id uint32, rows []uint32) {
		t.terms.edit(t.id, id).rows.addMany(t.id, rows)
		t.setTimes(id, rows...)
	})
	t.variantRows.flush(func(id uint32, rows []uint32) {
		_, set := t.variant(id)
		set.addMany(t.id, rows)
	})
}

// flushTrigrams adds what is pending to the terms of trigrams.
func (t *transaction) flushTrigrams() {
	t.trigramTerms.flush(func(trigram uint32, terms []uint32) { t.trigrams.edit(t.id, trigram).addMany(t.id, terms) })
}
