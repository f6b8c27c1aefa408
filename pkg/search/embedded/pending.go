package embedded

import "slices"

// pending contains rows or terms that must still be added to postings. Each pair of the key of the
// postings and the number to add is one integer. Adding many numbers at a time is much faster.
type pending struct{ pairs []uint64 }

const (
	// pendingLimit bounds the memory of pairs.
	pendingLimit = 1 << 21
	// keptPairs bounds the memory of pairs that is kept.
	keptPairs = 1 << 18
	// radixFrom is the number of pairs from which a radix sort is faster. digitBits is the length of its digits.
	radixFrom = 1 << 11
	digitBits = 11
)

func (p *pending) add(key, number uint32) {
	p.pairs = append(p.pairs, uint64(key)<<32|uint64(number))
}

func (p *pending) full() bool { return len(p.pairs) >= pendingLimit }

// sort sorts the pairs. They are most of the work of a load, and a radix sort takes a fifth of the time.
func (p *pending) sort() {
	if len(p.pairs) < radixFrom {
		slices.Sort(p.pairs)
		return
	}
	from, to := p.pairs, make([]uint64, len(p.pairs))
	for shift := 0; shift < 64; shift += digitBits {
		var ends [1 << digitBits]int
		for _, pair := range from {
			ends[pair>>shift&(1<<digitBits-1)]++
		}
		if ends[from[0]>>shift&(1<<digitBits-1)] == len(from) {
			continue
		}
		for i := range ends[1:] {
			ends[i+1] += ends[i]
		}
		for _, pair := range slices.Backward(from) {
			digit := pair >> shift & (1<<digitBits - 1)
			ends[digit]--
			to[ends[digit]] = pair
		}
		from, to = to, from
	}
	p.pairs = from
}

// flush calls add with each key and its sorted numbers, and removes all pairs.
func (p *pending) flush(add func(key uint32, numbers []uint32)) {
	if len(p.pairs) == 0 {
		return
	}
	p.sort()
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
	if p.pairs = p.pairs[:0]; cap(p.pairs) > keptPairs {
		p.pairs = nil
	}
}
