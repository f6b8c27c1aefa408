package embedded

import (
	"encoding/binary"
	"slices"
	"sort"
	"strings"
)

const (
	// chunkLimit is how many terms a part of an ordered list has at most.
	chunkLimit = 512
	// keysFrom is how many terms make keys worth their memory.
	keysFrom = 64
	keyBytes = 4
)

// chunk is a part of an ordered list. To look at a text somewhere in memory is slow, so four
// bytes of each are kept in a row: those behind the prefix that all have.
type chunk struct {
	terms []uint32
	// keys are empty where there are few terms, or numbers.
	keys   []uint32
	prefix string
}

// joined is what completions show for a term, in the given memory if that is enough.
func (s *state) joined(buffer []byte, number uint32) (text []byte, isNumber bool) {
	k := s.orderedKey(s.terms.at(number))
	return k.append(buffer[:0]), k.number
}

// newChunk makes a part of terms that are in order.
func (s *state) newChunk(terms []uint32) *chunk {
	c := &chunk{terms: terms}
	if len(terms) < keysFrom {
		return c
	}
	var bufferA, bufferB [256]byte
	first, isNumber := s.joined(bufferA[:], terms[0])
	if isNumber {
		return c
	}
	last, _ := s.joined(bufferB[:], terms[len(terms)-1])
	c.prefix = string(first[:common(first, last)])
	c.keys = make([]uint32, len(terms))
	for i, number := range terms {
		text, _ := s.joined(bufferA[:], number)
		c.keys[i] = keyOf(text, len(c.prefix))
	}
	return c
}

// common is how many bytes two texts begin with together.
func common[A, B string | []byte](a A, b B) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// keyOf are the bytes of a text from a place on, which may be behind its end.
func keyOf(text []byte, at int) uint32 {
	var key [keyBytes]byte
	if at < len(text) {
		copy(key[:], text[at:])
	}
	return binary.BigEndian.Uint32(key[:])
}

// behind is the place of the first term that comes after another, which is not in the part.
func (s *state) behind(c *chunk, number uint32) int {
	low, high := 0, len(c.terms)
	var buffer [256]byte
	if text, isNumber := s.joined(buffer[:], number); c.keys != nil {
		if isNumber {
			return 0
		}
		if order := strings.Compare(string(text[:min(len(text), len(c.prefix))]), c.prefix); order < 0 {
			return 0
		} else if order > 0 {
			return high
		}
		key := keyOf(text, len(c.prefix))
		low = sort.Search(high, func(i int) bool { return c.keys[i] >= key })
		high = low + sort.Search(high-low, func(i int) bool { return c.keys[low+i] > key })
	}
	return low + sort.Search(high-low, func(i int) bool { return s.compareTerms(c.terms[low+i], number) > 0 })
}

// merged is the part with more terms, which are in order.
func (s *state) merged(c *chunk, added []uint32) *chunk {
	result := &chunk{terms: make([]uint32, 0, len(c.terms)+len(added)), prefix: c.prefix}
	old := c.keys
	keys := make([]uint32, 0, len(old)+len(added))
	if old != nil {
		if result.prefix = s.prefixWith(c.prefix, added); len(result.prefix) < len(c.prefix) {
			old = rebased(old, c.prefix[len(result.prefix):])
		}
	}
	var buffer [256]byte
	done := 0
	for _, number := range added {
		at := max(done, s.behind(c, number))
		result.terms = append(append(result.terms, c.terms[done:at]...), number)
		if old != nil {
			text, isNumber := s.joined(buffer[:], number)
			if isNumber {
				old = nil
			} else {
				keys = append(append(keys, old[done:at]...), keyOf(text, len(result.prefix)))
			}
		}
		done = at
	}
	result.terms = append(result.terms, c.terms[done:]...)
	if old != nil {
		result.keys = append(keys, old[done:]...)
	} else {
		result.prefix = ""
	}
	return result
}

// prefixWith is what the prefix has in common with more terms. Only the first and the last
// of them can differ from it.
func (s *state) prefixWith(prefix string, added []uint32) string {
	var buffer [256]byte
	for _, number := range [...]uint32{added[0], added[len(added)-1]} {
		text, _ := s.joined(buffer[:], number)
		prefix = prefix[:common(text, prefix)]
	}
	return prefix
}

// rebased are keys that begin with the end of the prefix, which has become shorter.
func rebased(keys []uint32, tail string) []uint32 {
	result := make([]uint32, len(keys))
	for i, key := range keys {
		text := append(make([]byte, 0, keyBytes+len(tail)), tail...)
		result[i] = keyOf(binary.BigEndian.AppendUint32(text, key), 0)
	}
	return result
}

// without is the part without some of its terms, which are in order.
func (c *chunk) without(gone []uint32) *chunk {
	result := &chunk{terms: make([]uint32, 0, len(c.terms)), prefix: c.prefix}
	if c.keys != nil {
		result.keys = make([]uint32, 0, len(c.keys))
	}
	for i, number := range c.terms {
		if len(gone) > 0 && gone[0] == number {
			gone = gone[1:]
			continue
		}
		result.terms = append(result.terms, number)
		if c.keys != nil {
			result.keys = append(result.keys, c.keys[i])
		}
	}
	result.terms, result.keys = slices.Clip(result.terms), slices.Clip(result.keys)
	return result
}
