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
)

func (p *pending) add(key, number uint32) {
	p.pairs = append(p.pairs, uint64(key)<<32|uint64(number))
}

func (p *pending) full() bool { return len(p.pairs) >= pendingLimit }

// flush calls add with each key and its sorted numbers, and removes all pairs.
func (p *pending) flush(add func(key uint32, numbers []uint32)) {
	if len(p.pairs) == 0 {
		return
	}
	slices.Sort(p.pairs)
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
