package embedded

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// ordered is a list of terms in the order of completions: first numbers by value, then all other
// terms by the bytes of the text that completions show. Equal terms are ordered by their number.
// Chunks are immutable, so an assignment copies a list.
type ordered [][]uint32

// chunkLimit is the maximum number of terms of a chunk.
const chunkLimit = 512

// orderedKey determines the position of a term in an ordered list.
type orderedKey struct {
	number bool
	value  float64
	// key is the key of the leaf of a map. pair is true if the leaf belongs to a map.
	key, text string
	pair      bool
}

func (d *dictionary) orderedKey(t *term) orderedKey {
	k := orderedKey{text: t.text}
	if t.info().number() {
		k.number = true
		k.value, _ = query.ParseNumber(t.text)
	}
	if f := d.fields.get(t.info().field()); f.kind == query.Map {
		k.key, k.pair = f.key, true
	}
	return k
}

// textKey returns the key of a text that is not a number.
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
	if a.pair == b.pair && a.key == b.key {
		return strings.Compare(a.text, b.text)
	}
	return compareJoined(a, b)
}

// compareJoined compares the texts of keys joined with their values.
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

// shown returns the text that completions show for a term.
func (d *dictionary) shown(t *term) string {
	if f := d.fields.get(t.info().field()); f.kind == query.Map {
		return f.key + "=" + t.text
	}
	return t.text
}

func (d *dictionary) compareTerms(a, b uint32) int {
	ka, kb := d.orderedKey(d.terms.at(a)), d.orderedKey(d.terms.at(b))
	return cmp.Or(compareKeys(&ka, &kb), cmp.Compare(a, b))
}

// position is a position in an ordered list.
type position struct{ chunk, at int }

func (o ordered) end() position { return position{chunk: len(o)} }

func (o ordered) valid(p position) bool { return p.chunk >= 0 && p.chunk < len(o) }

func (o ordered) term(p position) uint32 { return o[p.chunk][p.at] }

func (o ordered) next(p position) position {
	if p.at++; p.at >= len(o[p.chunk]) {
		return position{chunk: p.chunk + 1}
	}
	return p
}

// previous returns the previous position. The position before the first is not valid.
func (o ordered) previous(p position) position {
	if p.at > 0 {
		p.at--
		return p
	}
	if p.chunk--; p.chunk >= 0 {
		p.at = len(o[p.chunk]) - 1
	}
	return p
}

func (p position) before(q position) bool {
	return p.chunk < q.chunk || p.chunk == q.chunk && p.at < q.at
}

// between returns the number of terms between two positions.
func (o ordered) between(p, q position) int {
	if !p.before(q) {
		return 0
	}
	if p.chunk == q.chunk {
		return q.at - p.at
	}
	n := len(o[p.chunk]) - p.at + q.at
	for chunk := p.chunk + 1; chunk < q.chunk; chunk++ {
		n += len(o[chunk])
	}
	return n
}

// search returns the first position for which reached is true. reached must be true for all following positions.
func (o ordered) search(reached func(number uint32) bool) position {
	part := sort.Search(len(o), func(i int) bool { return reached(o[i][len(o[i])-1]) })
	if part == len(o) {
		return o.end()
	}
	terms := o[part]
	return position{chunk: part, at: sort.Search(len(terms), func(i int) bool { return reached(terms[i]) })}
}

// seek returns the position of the first term that is not before a key.
func (d *dictionary) seek(o ordered, key orderedKey) position {
	return o.search(func(number uint32) bool {
		k := d.orderedKey(d.terms.at(number))
		return compareKeys(&k, &key) >= 0
	})
}

// partOf returns the index of the chunk to which a term belongs. The search starts with the chunk first.
func (d *dictionary) partOf(o ordered, first int, number uint32) int {
	return first + sort.Search(len(o)-first-1, func(i int) bool {
		return d.compareTerms(o[first+i+1][0], number) > 0
	})
}

// beforePart returns the number of the sorted terms that come before the chunk after a part.
func (d *dictionary) beforePart(o ordered, part int, terms []uint32) int {
	if part+1 == len(o) {
		return len(terms)
	}
	next := o[part+1][0]
	return sort.Search(len(terms), func(i int) bool { return d.compareTerms(terms[i], next) >= 0 })
}

// insert adds terms that are not in the list.
func (d *dictionary) insert(o ordered, added []uint32) ordered {
	if len(o) == 0 {
		d.sortTerms(added)
		return appendChunk(nil, added)
	}
	return d.edit(o, added, func(chunk, added []uint32) []uint32 {
		result := make([]uint32, 0, len(chunk)+len(added))
		for _, number := range added {
			at := sort.Search(len(chunk), func(i int) bool { return d.compareTerms(chunk[i], number) > 0 })
			result = append(append(result, chunk[:at]...), number)
			chunk = chunk[at:]
		}
		return append(result, chunk...)
	})
}

// without removes terms that are in the list.
func (d *dictionary) without(o ordered, removed []uint32) ordered {
	return d.edit(o, removed, func(chunk, removed []uint32) []uint32 {
		result := make([]uint32, 0, len(chunk))
		for _, number := range chunk {
			if len(removed) > 0 && removed[0] == number {
				removed = removed[1:]
			} else {
				result = append(result, number)
			}
		}
		return slices.Clip(result)
	})
}

// edit replaces the chunks to which terms belong. It calls change with each of them and its terms in order.
func (d *dictionary) edit(o ordered, terms []uint32, change func(chunk, terms []uint32) []uint32) ordered {
	d.sortTerms(terms)
	result := make(ordered, 0, len(o)+2*len(terms)/chunkLimit+1)
	done := 0
	for len(terms) > 0 && done < len(o) {
		part := d.partOf(o, done, terms[0])
		take := d.beforePart(o, part, terms)
		result = append(result, o[done:part]...)
		result = appendChunk(result, change(o[part], terms[:take]))
		terms, done = terms[take:], part+1
	}
	return append(result, o[done:]...)
}

// appendChunk appends a chunk. It splits a chunk that is too large, and leaves room for more terms. A small one is
// joined with the previous one.
func appendChunk(o ordered, terms []uint32) ordered {
	last := len(o) - 1
	switch {
	case len(terms) == 0:
		return o
	case last >= 0 && len(o[last])+len(terms) < chunkLimit/4:
		o[last] = slices.Concat(o[last], terms)
		return o
	case len(terms) <= chunkLimit:
		return append(o, terms)
	}
	for part := range slices.Chunk(terms, chunkLimit*3/4) {
		o = append(o, slices.Clone(part))
	}
	return o
}

// sortTerms sorts terms in the order of an ordered list.
func (d *dictionary) sortTerms(terms []uint32) {
	type shown struct {
		text   string
		number uint32
	}
	// The texts are read once, because they are far apart in memory.
	texts := make([]shown, 0, len(terms))
	var numbers []uint32
	for _, number := range terms {
		if t := d.terms.at(number); t.info().number() {
			numbers = append(numbers, number)
		} else {
			texts = append(texts, shown{d.shown(t), number})
		}
	}
	slices.SortFunc(numbers, d.compareTerms)
	slices.SortFunc(texts, func(a, b shown) int {
		return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.number, b.number))
	})
	copy(terms, numbers)
	for i := range texts {
		terms[len(numbers)+i] = texts[i].number
	}
}
