package embedded

import (
	"slices"
	"unsafe"
)

// texts are the texts of terms. They are in large pieces of memory and found by their places, so that the
// garbage collector does not look at each. Memory that readers have is not changed: more texts come behind those
// that are there, and more pieces behind those.
type texts [][]byte

// textPlace is where a text is: the number of the piece plus one, and where in it. The zero place has the
// empty text.
type textPlace struct {
	piece      uint32
	at, length uint16
}

const (
	// pieceSize is how large a piece is that has many texts, in bytes; a text of more than
	// pieceShare has one to itself.
	pieceSize  = 64 << 10
	pieceShare = pieceSize / 8
	// wholePiece is the length of a text that has a piece to itself.
	wholePiece = 1<<16 - 1
	// sparseTexts is how much memory of texts that are gone does not matter. More of it than that, and than
	// a third of all, is given back.
	sparseTexts = 1 << 20
)

// textWriter is what the writer knows of texts beside the state.
type textWriter struct {
	// used are the bytes of each piece that terms have.
	used []int
	// total and unused are bytes of all pieces: those that were written, and those of them that no term has.
	total, unused int
	// open is the number plus one of the piece that more texts are written to, and end is where.
	open uint32
	end  int
	// free are numbers of pieces that were given back.
	free []uint32
}

// textOf is the text of a term.
func (s *state) textOf(t *term) string {
	place := t.stored
	if place.piece == 0 {
		return ""
	}
	piece := s.texts[place.piece-1]
	if place.length == wholePiece {
		return bytesAsString(piece)
	}
	return unsafe.String(&piece[place.at], place.length)
}

// storeText keeps a copy of a text.
func (t *transaction) storeText(text string) textPlace {
	if text == "" {
		return textPlace{}
	}
	w := &t.writer.texts
	var place textPlace
	if len(text) > pieceShare {
		place = textPlace{piece: t.newPiece(len(text)), length: wholePiece}
	} else {
		if w.open == 0 || w.end+len(text) > pieceSize {
			w.open, w.end = t.newPiece(pieceSize), 0
		}
		place = textPlace{piece: w.open, at: uint16(w.end), length: uint16(len(text))}
		w.end += len(text)
	}
	copy(t.state.texts[place.piece-1][place.at:], text)
	w.used[place.piece-1] += len(text)
	w.total += len(text)
	return place
}

// newPiece makes a piece, and gives its number plus one.
func (t *transaction) newPiece(size int) uint32 {
	w := &t.writer.texts
	if last := len(w.free) - 1; last >= 0 {
		number := w.free[last]
		w.free = w.free[:last]
		t.ownPieces()
		t.state.texts[number] = make([]byte, size)
		return number + 1
	}
	// What older states see of the memory does not change.
	t.state.texts = append(t.state.texts, make([]byte, size))
	w.used = append(w.used, 0)
	return uint32(len(t.state.texts))
}

// ownPieces makes the slice of pieces one that the transaction may change.
func (t *transaction) ownPieces() {
	if !t.ownTexts {
		t.state.texts, t.ownTexts = slices.Clone(t.state.texts), true
	}
}

// dropText notes that a term does not have its text any more.
func (t *transaction) dropText(e *term) {
	if e.stored.piece == 0 {
		return
	}
	w, size := &t.writer.texts, len(t.textOf(e))
	w.used[e.stored.piece-1] -= size
	w.unused += size
}

// packTexts gives back memory of texts that are gone once there is much of it: the texts that are left in
// pieces that are mostly unused are written anew.
func (t *transaction) packTexts() {
	w := &t.writer.texts
	if w.unused <= sparseTexts || w.unused <= w.total/3 {
		return
	}
	sparse := make([]bool, len(t.state.texts))
	for number, piece := range t.state.texts {
		sparse[number] = piece != nil && w.used[number] <= len(piece)*3/4
	}
	w.open = 0
	for number := range uint32(t.terms.len()) {
		e := t.terms.at(number)
		if place := e.stored; place.piece > 0 && sparse[place.piece-1] {
			text := t.textOf(e)
			t.dropText(e)
			t.terms.edit(t.id, number).stored = t.storeText(text)
		}
	}
	t.ownPieces()
	for number := range sparse {
		if sparse[number] {
			t.state.texts[number] = nil
			w.free = append(w.free, uint32(number))
		}
	}
	// What is known of texts from before would keep their memory.
	t.recent = recentTerms{}
	w.count()
}

// count sums up what is in all pieces.
func (w *textWriter) count() {
	w.total, w.unused = 0, 0
	for _, used := range w.used {
		w.total += used
	}
}

// newTextWriter derives from a state what the writer knows of its texts.
func newTextWriter(s *state) textWriter {
	w := textWriter{used: make([]int, len(s.texts))}
	for number := range uint32(s.terms.len()) {
		if e := s.terms.at(number); e.stored.piece > 0 {
			w.used[e.stored.piece-1] += len(s.textOf(e))
		}
	}
	w.count()
	for number, piece := range s.texts {
		if piece == nil {
			w.free = append(w.free, uint32(number))
			continue
		}
		w.total += len(piece) - w.used[number]
		w.unused += len(piece) - w.used[number]
	}
	return w
}
