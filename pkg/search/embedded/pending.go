package embedded

import "slices"

// pending contains rows or terms that must still be added to postings. Each pair of the key of the
// postings and the number to add is one integer. Adding many numbers at a time is much faster.
type pending struct {
	pairs []uint64
	// spare is a buffer for sortByKey.
	spare []uint64
	// unsorted is true if a number is less than the previous number.
	unsorted bool
}

const (
	// pendingLimit bounds the memory of pairs.
	pendingLimit = 1 << 21
	// directLimit is the number of pairs below which a radix sort is slower.
	directLimit = 1 << 10
	digitBits   = 11
	// keptPairs bounds the memory of pairs that is kept for the next transaction.
	keptPairs = 1 << 18
)

func (p *pending) add(key, number uint32) {
	if n := len(p.pairs); n > 0 && uint32(p.pairs[n-1]) > number {
		p.unsorted = true
	}
	p.pairs = append(p.pairs, uint64(key)<<32|uint64(number))
}

func (p *pending) full() bool { return len(p.pairs) >= pendingLimit }

// flush calls add with each key and its sorted numbers, and removes all pairs.
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

// shrink frees memory that only large transactions require.
func (p *pending) shrink() {
	if cap(p.pairs) > keptPairs {
		p.pairs = nil
	}
	if cap(p.spare) > keptPairs {
		p.spare = nil
	}
}

// sortByKey sorts by the keys with a radix sort, which keeps the order of the numbers.
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
