package embedded

import (
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// A trigram consists of three consecutive bytes of the text of a term, each reduced to a symbol.
// Different bytes may have the same symbol, so terms that are found by trigrams are only
// candidates. Two end symbols follow each text, so that shorter parts at the end of a text are also
// starts of trigrams.
const (
	symbolBits = 6
	symbolEnd  = 0
)

// symbols maps each byte to its symbol. Digits and letters, regardless of case, have their own
// symbols.
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

// firstShared is the first symbol that several bytes share.
const firstShared = 38

// exact reports whether a text has only symbols that are unique, so that equal symbols mean equal
// texts, ignoring case.
func exact(text string) bool {
	for i := range len(text) {
		if symbols[text[i]] >= firstShared {
			return false
		}
	}
	return true
}

// indexedTail is the length of the end of a map's key that is indexed with the values, including
// the "=". A text inside the key is found by comparing keys.
const indexedTail = 2

// eachTrigram executes call for each trigram of a term.
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

// indexed reports whether a term is indexed by trigrams. Canonical times are not indexed: there are
// many of them, and few keywords occur in them.
func indexed(p *property, info termInfo) bool {
	return !p.hidden && !info.canonical() && !info.empty() && p.name != query.Cluster
}

// containing returns the terms that may contain a part, except terms with the part inside the key of a
// map.
func (s *state) containing(piece string) *roaring.Bitmap {
	// Only the tail of the key is indexed.
	if at := strings.LastIndexByte(piece, '='); at > indexedTail {
		piece = piece[at-indexedTail:]
	}
	if len(piece) < 3 {
		return s.beginning(piece)
	}
	sets := make([]postings, 0, len(piece)-2)
	for i := range len(piece) - 2 {
		trigram := (symbols[piece[i]]<<symbolBits|symbols[piece[i+1]])<<symbolBits | symbols[piece[i+2]]
		set := s.trigrams.get(trigram)
		if set.empty() {
			return roaring.New()
		}
		sets = append(sets, set)
	}
	slices.SortFunc(sets, func(a, b postings) int { return a.count() - b.count() })
	found := sets[0].asBitmap()
	for i := range sets[1:] {
		found = roaring.And(found, sets[1+i].asBitmap())
	}
	return found
}

// beginning returns the terms with a trigram that begins with one or two bytes. Each byte of a text is
// the beginning of a trigram.
func (s *state) beginning(piece string) *roaring.Bitmap {
	first, bits := uint32(0), 3*symbolBits
	for i := range len(piece) {
		bits -= symbolBits
		first |= symbols[piece[i]] << bits
	}
	words := (s.terms.len() + 63) / 64
	found, spare := make(dense, words), make(dense, words)
	for trigram := first; trigram < first+1<<bits; trigram++ {
		if set := s.trigrams.at(trigram); set != nil {
			found.addRows(set, spare)
		}
	}
	return roaring.FromDense(found, false)
}
