package embedded

import (
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// Trigrams are three bytes in a row of the texts of terms, each byte reduced to a
// symbol; different bytes may have one symbol, so what trigrams find must be compared. Two
// ends follow each text, so that shorter pieces are the beginnings of trigrams too.
const (
	symbolBits = 6
	symbolEnd  = 0
)

// symbols gives bytes their symbols: letters without case and digits have their own.
var symbols = func() (table [256]uint32) {
	for i := range table {
		table[i] = firstShared + uint32(i)%26
	}
	for i := range 26 {
		table['a'+i], table['A'+i] = 1+uint32(i), 1+uint32(i)
	}
	for i := range 10 {
		table['0'+i] = 27 + uint32(i)
	}
	table['-'] = 37
	return table
}()

// firstShared is the first symbol that several bytes have.
const firstShared = 38

// exact tells whether no other text has the same symbols, but for the case of letters.
func exact(text string) bool {
	for i := range len(text) {
		if symbols[text[i]] >= firstShared {
			return false
		}
	}
	return true
}

// indexedTail is how much of a map's key is indexed with the values, together with
// the "=". What lies in the key as a whole is found by the keys.
const indexedTail = 2

// eachTrigram calls f with the trigrams of a term.
func eachTrigram(f *field, text string, call func(trigram uint32)) {
	var window uint32
	length := 0
	push := func(symbol uint32) {
		window = window<<symbolBits&(1<<(3*symbolBits)-1) | symbol
		if length++; length >= 3 {
			call(window)
		}
	}
	if f.kind == query.Map {
		key := f.key[max(0, len(f.key)-indexedTail):]
		for i := range len(key) {
			push(symbols[key[i]])
		}
		push(symbols['='])
	}
	for i := range len(text) {
		push(symbols[text[i]])
	}
	push(symbolEnd)
	push(symbolEnd)
}

// indexed tells whether keywords find a term by trigrams. Canonical times are not worth it:
// they are many, and few keywords can be in them.
func indexed(p *property, info termInfo) bool {
	return !p.hidden && !info.canonical() && !info.empty() && p.name != query.Cluster
}

// containing gives the terms that trigrams find for a piece of at least two bytes; some of them do not
// contain it. In maps it finds what is not in the key alone.
func (s *state) containing(piece string) *roaring.Bitmap {
	// Of the key no more than its tail is indexed.
	if at := strings.LastIndexByte(piece, '='); at > indexedTail {
		piece = piece[at-indexedTail:]
	}
	if len(piece) == 2 {
		first := (symbols[piece[0]]<<symbolBits | symbols[piece[1]]) << symbolBits
		found := make([]*roaring.Bitmap, 0, 1<<symbolBits)
		for i := range uint32(1 << symbolBits) {
			if set := s.trigrams.get(first + i); !set.empty() {
				found = append(found, set.asBitmap())
			}
		}
		return unionOf(found, s.terms.len())
	}
	sets := make([]rowset, 0, len(piece)-2)
	for i := range len(piece) - 2 {
		trigram := (symbols[piece[i]]<<symbolBits|symbols[piece[i+1]])<<symbolBits | symbols[piece[i+2]]
		set := s.trigrams.get(trigram)
		if set.empty() {
			return roaring.New()
		}
		sets = append(sets, set)
	}
	slices.SortFunc(sets, func(a, b rowset) int { return a.count() - b.count() })
	if least := &sets[0]; least.many == nil || least.many.bitmap == nil {
		found := roaring.New()
		least.each(func(number uint32) bool {
			if !slices.ContainsFunc(sets[1:], func(other rowset) bool { return !other.contains(number) }) {
				found.Add(number)
			}
			return true
		})
		return found
	}
	found := sets[0].asBitmap()
	for i := range sets[1:] {
		found = roaring.And(found, sets[1+i].asBitmap())
	}
	return found
}

// unionOf is the union of bitmaps of numbers below a limit.
func unionOf(bitmaps []*roaring.Bitmap, limit int) *roaring.Bitmap {
	union, spare := make(dense, (limit+63)/64), make(dense, (limit+63)/64)
	for _, b := range bitmaps {
		union.addBitmap(b, spare)
	}
	return roaring.FromDense(union, false)
}
