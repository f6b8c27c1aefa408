package access

import (
	"math/bits"
	"slices"
)

const wordBits = 32

// set is a set of small numbers: a sorted list, or a bitmap where that is smaller. Its zero value is empty.
type set struct {
	words []uint32
	size  uint32
	dense bool
}

// newBitmap returns an empty set with room for the numbers below limit.
func newBitmap(limit int) set {
	return set{words: make([]uint32, (limit+wordBits-1)/wordBits), dense: true}
}

func (s *set) has(n uint32) bool {
	if s.dense {
		return int(n/wordBits) < len(s.words) && s.words[n/wordBits]&(1<<(n%wordBits)) != 0
	}
	if len(s.words) == 1 {
		return s.words[0] == n
	}
	_, found := slices.BinarySearch(s.words, n)
	return found
}

// add adds a number, and reports whether it is new.
func (s *set) add(n uint32) bool {
	if s.has(n) {
		return false
	}
	s.size++
	if !s.dense {
		at, _ := slices.BinarySearch(s.words, n)
		s.words = slices.Insert(s.words, at, n)
		if highest := s.words[len(s.words)-1]; len(s.words) > int(highest/wordBits)+1 {
			sparse := s.words
			s.words, s.dense = make([]uint32, highest/wordBits+1), true
			for _, n := range sparse {
				s.words[n/wordBits] |= 1 << (n % wordBits)
			}
		}
		return true
	}
	for int(n/wordBits) >= len(s.words) {
		s.words = append(s.words, 0)
	}
	s.words[n/wordBits] |= 1 << (n % wordBits)
	return true
}

// remove removes a number that the set contains.
func (s *set) remove(n uint32) {
	s.size--
	if !s.dense {
		at, _ := slices.BinarySearch(s.words, n)
		s.words = slices.Delete(s.words, at, at+1)
		return
	}
	s.words[n/wordBits] &^= 1 << (n % wordBits)
	// Half of the words, so that a set at the limit does not change its form each time.
	if int(s.size) < len(s.words)/2 {
		sparse := make([]uint32, 0, s.size)
		s.each(func(n uint32) bool { sparse = append(sparse, n); return true })
		s.words, s.dense = sparse, false
	}
}

// each calls yield with the numbers in ascending order until yield returns false, and
// reports whether it has never done so.
func (s *set) each(yield func(uint32) bool) bool {
	for i, word := range s.words {
		if !s.dense {
			if !yield(word) {
				return false
			}
			continue
		}
		for ; word != 0; word &= word - 1 {
			if !yield(uint32(i*wordBits + bits.TrailingZeros32(word))) {
				return false
			}
		}
	}
	return true
}

// eachCommon calls yield with the numbers that a, b and the bitmap c contain, as each does.
func eachCommon(a, b, c *set, yield func(uint32) bool) bool {
	if a.dense && b.dense {
		for i := range min(len(a.words), len(b.words), len(c.words)) {
			for word := a.words[i] & b.words[i] & c.words[i]; word != 0; word &= word - 1 {
				if !yield(uint32(i*wordBits + bits.TrailingZeros32(word))) {
					return false
				}
			}
		}
		return true
	}
	if a.dense || !b.dense && b.size < a.size {
		a, b = b, a
	}
	return a.each(func(n uint32) bool { return !b.has(n) || !c.has(n) || yield(n) })
}
