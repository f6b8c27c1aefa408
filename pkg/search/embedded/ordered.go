package embedded

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// ordered are terms in the order of completions: numbers by number, then all others
// by the bytes of what completions show. Equal ones are ordered by number. Its parts do not
// change, so it is copied by assignment.
type ordered []*chunk

// orderedKey is what terms are compared by.
type orderedKey struct {
	number bool
	value  float64
	// key is that of a map's leaf, and pair whether there is one.
	key, text string
	pair      bool
}

func (s *state) orderedKey(t *term) orderedKey {
	k := orderedKey{text: s.textOf(t)}
	if t.info().number() {
		k.number = true
		k.value, _ = query.ParseNumber(s.textOf(t))
	}
	if f := s.fields.get(t.info().field()); f.kind == query.Map {
		k.key, k.pair = f.key, true
	}
	return k
}

// textKey is where a text is, which is no number.
func textKey(text string) orderedKey { return orderedKey{text: text} }

func compareKeys(a, b *orderedKey) int {
	if a.number != b.number {
		if a.number {
			return -1
		}
		return 1
	}
	if a.number {
		if order := cmp.Compare(a.value, b.value); order != 0 {
			return order
		}
	}
	if !a.pair && !b.pair {
		return strings.Compare(a.text, b.text)
	}
	if a.pair && b.pair && a.key == b.key {
		return strings.Compare(a.text, b.text)
	}
	return compareJoined(a, b)
}

// compareJoined compares as if keys and texts were put together.
func compareJoined(a, b *orderedKey) int {
	var bufferA, bufferB [256]byte
	return strings.Compare(string(a.append(bufferA[:0])), string(b.append(bufferB[:0])))
}

func (k *orderedKey) append(dst []byte) []byte {
	if k.pair {
		dst = append(append(dst, k.key...), '=')
	}
	return append(dst, k.text...)
}

// shown is the text that completions show for a term.
func (s *state) shown(t *term) string {
	if f := s.fields.get(t.info().field()); f.kind == query.Map {
		return f.key + "=" + s.textOf(t)
	}
	return s.textOf(t)
}

func (s *state) compareTerms(a, b uint32) int {
	ka, kb := s.orderedKey(s.terms.at(a)), s.orderedKey(s.terms.at(b))
	return cmp.Or(compareKeys(&ka, &kb), cmp.Compare(a, b))
}

// position is a place in an ordered list.
type position struct{ chunk, at int }

func (o ordered) end() position { return position{chunk: len(o)} }

func (o ordered) valid(p position) bool { return p.chunk >= 0 && p.chunk < len(o) }

func (o ordered) term(p position) uint32 { return o[p.chunk].terms[p.at] }

func (o ordered) next(p position) position {
	if p.at++; p.at >= len(o[p.chunk].terms) {
		return position{chunk: p.chunk + 1}
	}
	return p
}

// previous is the place before; it is not valid before the first.
func (o ordered) previous(p position) position {
	if p.at > 0 {
		p.at--
		return p
	}
	if p.chunk--; p.chunk >= 0 {
		p.at = len(o[p.chunk].terms) - 1
	}
	return p
}

func (p position) before(q position) bool {
	return p.chunk < q.chunk || p.chunk == q.chunk && p.at < q.at
}

// search is the first place at which reached is true, which it stays from there on.
func (o ordered) search(reached func(number uint32) bool) position {
	part := sort.Search(len(o), func(i int) bool { return reached(o[i].terms[len(o[i].terms)-1]) })
	if part == len(o) {
		return o.end()
	}
	terms := o[part].terms
	return position{chunk: part, at: sort.Search(len(terms), func(i int) bool { return reached(terms[i]) })}
}

// seek is the place of the first term that is not before a key.
func (s *state) seek(o ordered, key orderedKey) position {
	return o.search(func(number uint32) bool {
		k := s.orderedKey(s.terms.at(number))
		return compareKeys(&k, &key) >= 0
	})
}

// partOf is the part, not before the first, that a term is in or belongs to.
func (s *state) partOf(o ordered, first int, number uint32) int {
	return first + sort.Search(len(o)-first-1, func(i int) bool {
		return s.compareTerms(o[first+i+1].terms[0], number) > 0
	})
}

// beforePart is how many of the sorted terms come before the next part.
func (s *state) beforePart(o ordered, part int, terms []uint32) int {
	if part+1 == len(o) {
		return len(terms)
	}
	next := o[part+1].terms[0]
	return sort.Search(len(terms), func(i int) bool { return s.compareTerms(terms[i], next) >= 0 })
}

// insert adds terms that are not in the list.
func (s *state) insert(o ordered, added []uint32) ordered {
	s.sortTerms(added)
	result := make(ordered, 0, len(o)+2*len(added)/chunkLimit+1)
	if len(o) == 0 {
		return s.appendChunks(result, &chunk{terms: added})
	}
	done := 0
	for len(added) > 0 {
		part := s.partOf(o, done, added[0])
		take := s.beforePart(o, part, added)
		result = append(result, o[done:part]...)
		done = part + 1
		result = s.appendChunks(result, s.merged(o[part], added[:take]))
		added = added[take:]
	}
	return append(result, o[done:]...)
}

// appendChunks appends a part that may be too large, so that there is room for more.
func (s *state) appendChunks(o ordered, c *chunk) ordered {
	if len(c.terms) <= chunkLimit && (c.keys != nil || len(c.terms) < keysFrom) {
		return append(o, c)
	}
	if len(c.terms) <= chunkLimit {
		return append(o, s.newChunk(slices.Clip(c.terms)))
	}
	for part := range slices.Chunk(c.terms, chunkLimit*3/4) {
		o = append(o, s.newChunk(slices.Clone(part)))
	}
	return o
}

// without removes terms that are in the list.
func (s *state) without(o ordered, removed []uint32) ordered {
	s.sortTerms(removed)
	result := make(ordered, 0, len(o))
	done := 0
	for len(removed) > 0 && done < len(o) {
		part := s.partOf(o, done, removed[0])
		take := s.beforePart(o, part, removed)
		result = append(result, o[done:part]...)
		done = part + 1
		c := o[part].without(removed[:take])
		removed = removed[take:]
		if last := len(result) - 1; last >= 0 && len(c.terms) > 0 && len(result[last].terms)+len(c.terms) < chunkLimit/4 {
			result[last] = s.newChunk(slices.Concat(result[last].terms, c.terms))
		} else if len(c.terms) > 0 {
			result = append(result, c)
		}
	}
	return append(result, o[done:]...)
}

// sortable is a term with eight bytes of what it is ordered by.
type sortable struct {
	prefix uint64
	number uint32
}

// sortTerms orders terms as an ordered list does. Texts are compared eight bytes at a
// time, kept beside the terms, since each look at a text of many is slow.
func (s *state) sortTerms(terms []uint32) {
	if len(terms) < 64 {
		slices.SortFunc(terms, s.compareTerms)
		return
	}
	texts := make([]sortable, 0, len(terms))
	var numbers []uint32
	for _, number := range terms {
		if s.terms.at(number).info().number() {
			numbers = append(numbers, number)
		} else {
			texts = append(texts, sortable{number: number})
		}
	}
	slices.SortFunc(numbers, s.compareTerms)
	s.sortTexts(texts, 0)
	copy(terms, numbers)
	for i := range texts {
		terms[len(numbers)+i] = texts[i].number
	}
}

// sortTexts orders terms whose texts are the same up to depth.
func (s *state) sortTexts(texts []sortable, depth int) {
	if len(texts) < 16 {
		slices.SortFunc(texts, func(a, b sortable) int { return s.compareTerms(a.number, b.number) })
		return
	}
	ended := true
	for i := range texts {
		var more bool
		texts[i].prefix, more = s.bytesAt(texts[i].number, depth)
		ended = ended && !more
	}
	if ended {
		// What is the same but for bytes of zero at the end is left to the comparison.
		slices.SortFunc(texts, func(a, b sortable) int {
			return cmp.Or(cmp.Compare(a.prefix, b.prefix), s.compareTerms(a.number, b.number))
		})
		return
	}
	slices.SortFunc(texts, func(a, b sortable) int { return cmp.Compare(a.prefix, b.prefix) })
	for first := 0; first < len(texts); {
		end := first + 1
		for end < len(texts) && texts[end].prefix == texts[first].prefix {
			end++
		}
		if end-first > 1 {
			s.sortTexts(texts[first:end], depth+8)
		}
		first = end
	}
}

// bytesAt are eight bytes of what completions show for a term, and whether there are more.
func (s *state) bytesAt(number uint32, depth int) (prefix uint64, more bool) {
	t := s.terms.at(number)
	var bytes [8]byte
	length := 0
	if f := s.fields.get(t.info().field()); f.kind == query.Map {
		if depth < len(f.key) {
			length = copy(bytes[:], f.key[depth:])
		}
		if length < len(bytes) && depth+length == len(f.key) {
			bytes[length] = '='
			length++
		}
		depth -= len(f.key) + 1
	}
	if at := depth + length; at >= 0 && at < len(s.textOf(t)) && length < len(bytes) {
		length += copy(bytes[length:], s.textOf(t)[at:])
	}
	return binary.BigEndian.Uint64(bytes[:]), depth+length < len(s.textOf(t))
}
