package embedded

// numberKind is a kind of reused numbers.
type numberKind uint8

const (
	termNumbers numberKind = iota
	fieldNumbers
	propertyNumbers
	rowNumbers
	classNumbers
	relationNumbers
	numberKinds
)

// freeList contains the numbers to which no data refer.
type freeList struct {
	free [numberKinds][]uint32
	// retired are numbers that changes may still refer to, in the order of versions.
	retired []retiredNumber
}

type retiredNumber struct {
	version uint64
	number  uint32
	kind    numberKind
}

// take returns a free number of a kind, or next if there is none.
func (l *freeList) take(kind numberKind, next int) uint32 {
	free := l.free[kind]
	if len(free) == 0 {
		return uint32(next)
	}
	l.free[kind] = free[:len(free)-1]
	return free[len(free)-1]
}

// add frees a number immediately.
func (l *freeList) add(kind numberKind, number uint32) {
	l.free[kind] = append(l.free[kind], number)
}

// retire frees a number as soon as no change refers to it.
func (l *freeList) retire(kind numberKind, number uint32, version uint64) {
	l.retired = append(l.retired, retiredNumber{version: version, number: number, kind: kind})
}

// release frees the numbers to which only changes before a version can refer.
func (l *freeList) release(version uint64) {
	done := 0
	for done < len(l.retired) && l.retired[done].version < version {
		l.add(l.retired[done].kind, l.retired[done].number)
		done++
	}
	if l.retired = l.retired[done:]; len(l.retired) == 0 {
		l.retired = nil
	}
}

// newFreeList returns a list of the numbers that a state does not use, except those of relations.
func newFreeList(s *state) *freeList {
	l := &freeList{}
	add := func(kind numberKind, count int, unused func(number uint32) bool) {
		for number := range uint32(count) {
			if unused(number) {
				l.add(kind, number)
			}
		}
	}
	add(termNumbers, s.terms.len(), func(i uint32) bool { return i > 0 && s.terms.at(i).postings.empty() })
	add(fieldNumbers, s.fields.len(), func(i uint32) bool { f := s.fields.get(i); return f == nil || f.terms == 0 })
	add(classNumbers, s.classes.len(), func(i uint32) bool { c := s.classes.at(i); return c.rows.empty() && !c.pending })
	add(propertyNumbers, s.properties.len(), func(i uint32) bool {
		id, known := s.propertyNames[s.properties.get(i).name]
		return !known || id != i
	})
	add(rowNumbers, s.rows.len(), func(i uint32) bool { return s.rows.at(i).data == "" })
	return l
}
