package embedded

import (
	"slices"
	"strings"
	"sync"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// writer is what only transactions use, one at a time.
type writer struct {
	transactions uint64
	fields       map[fieldKey]uint32
	// free are numbers that nothing refers to.
	free [graveKinds][]uint32
	// What is pending is added when it is much, or before it is looked at; between transactions nothing is.
	termRows, variantRows, trigramTerms pending
	scratch                             scratch
	texts                               textWriter
	// rowSlab keeps the data of rows.
	rowSlab slab
	recent  recentTerms
	// graves are numbers that changes may still refer to, in the order of versions.
	graves []grave
}

type fieldKey struct {
	property uint32
	kind     query.Type
	key      string
}

// grave is a number that was given up in a version.
type grave struct {
	version uint64
	number  uint32
	kind    uint8
}

// The kinds of numbers. Those of rows and classes are free at once.
const (
	graveTerm = iota
	graveField
	graveProperty
	graveRow
	graveClass
	graveKinds
)

// newWriter derives a writer from a state. After a transaction was given up this is
// what makes its changes undone.
func newWriter(s *state, transactions uint64) *writer {
	w := &writer{transactions: transactions, fields: map[fieldKey]uint32{}, texts: newTextWriter(s)}
	for i := range uint32(s.fields.len()) {
		if f := s.fields.get(i); f != nil {
			f.terms = 0
		}
	}
	for i := uint32(1); i < uint32(s.terms.len()); i++ {
		if e := s.terms.at(i); e.rows.empty() {
			w.free[graveTerm] = append(w.free[graveTerm], i)
		} else {
			s.fields.get(e.info().field()).terms++
		}
	}
	for i := range uint32(s.fields.len()) {
		if f := s.fields.get(i); f != nil && f.terms > 0 {
			w.fields[fieldKey{f.property, f.kind, f.key}] = i
		} else {
			w.free[graveField] = append(w.free[graveField], i)
		}
	}
	for i := range uint32(s.classes.len()) {
		c := s.classes.get(i)
		if c.rows.empty() && !c.pending {
			w.free[graveClass] = append(w.free[graveClass], i)
		}
	}
	for i := range uint32(s.properties.len()) {
		p := s.properties.get(i)
		if id, known := s.propertyNames[p.name]; !known || id != i {
			w.free[graveProperty] = append(w.free[graveProperty], i)
		}
	}
	for i := range uint32(s.rows.len()) {
		if s.rows.at(i).data == "" {
			w.free[graveRow] = append(w.free[graveRow], i)
		}
	}
	return w
}

// transaction changes a copy of a state.
type transaction struct {
	state
	id uint64
	*writer
	// recording is false while data are loaded: there are no changes then.
	recording bool
	changes   []change

	// fresh are terms that are new, by property, and emptied those that lost their last row.
	fresh   map[uint32][]uint32
	emptied []uint32
	// hollow are properties that lost the last row of a variant.
	hollow []uint32

	// loose are rows that may have been left without a resource and without edges.
	loose []uint32

	// stored is what must be written to disk.
	stored storedChanges

	// What is set tells which maps and slices are those of the transaction already.
	ownNames, ownClusters, ownRelations, ownTexts bool
}

func (w *writer) begin(s *state) *transaction {
	w.transactions++
	// What the last transaction has given up may be in it.
	w.scratch.shape = w.scratch.shape[:0]
	return &transaction{state: *s, id: w.transactions, writer: w, recording: true, fresh: map[uint32][]uint32{}}
}

// number gives a free number of a kind, or the next.
func (w *writer) number(kind int, next int) uint32 {
	if free := w.free[kind]; len(free) > 0 {
		number := free[len(free)-1]
		w.free[kind] = free[:len(free)-1]
		return number
	}
	return uint32(next)
}

func (t *transaction) bury(kind int, number uint32) {
	t.graves = append(t.graves, grave{version: t.version, number: number, kind: uint8(kind)})
}

// release frees the numbers that only changes before a version could refer to.
func (w *writer) release(version uint64) {
	done := 0
	for done < len(w.graves) && w.graves[done].version < version {
		w.free[w.graves[done].kind] = append(w.free[w.graves[done].kind], w.graves[done].number)
		done++
	}
	if w.graves = w.graves[done:]; len(w.graves) == 0 {
		w.graves = nil
	}
}

// recentTerms are terms that the transaction has just found. Most values are those of many rows, and are
// found here without a look at memory far away.
type recentTerms [1 << recentBits]recentTerm

type recentTerm struct {
	transaction   uint64
	field, number uint32
	kind          termInfo
	text          string
}

const recentBits = 11

// at is where the term with a hash is, if it is there.
func (r *recentTerms) at(hash uint64) *recentTerm { return &r[hash&(1<<recentBits-1)] }

// property gives the number of a property.
func (t *transaction) property(name string) uint32 {
	if id, known := t.propertyNames[name]; known {
		return id
	}
	t.cloneNames()
	id := t.number(graveProperty, t.properties.len())
	name = strings.Clone(name)
	t.propertyNames[name] = id
	*t.properties.edit(t.id, id) = &property{owner: t.id, name: name, hidden: query.Hidden(name), json: quoted(name) + ":"}
	return id
}

func (t *transaction) cloneNames() {
	if !t.ownNames {
		t.propertyNames, t.ownNames = cloneMap(t.propertyNames), true
	}
}

func cloneMap(names map[string]uint32) map[string]uint32 {
	clone := make(map[string]uint32, len(names)+1)
	for name, id := range names {
		clone[name] = id
	}
	return clone
}

// editProperty gives a property to be changed.
func (t *transaction) editProperty(id uint32) *property {
	p := t.properties.get(id)
	if p.owner == t.id {
		return p
	}
	owned := *p
	owned.owner = t.id
	*t.properties.edit(t.id, id) = &owned
	return &owned
}

// field gives the number of a field.
func (t *transaction) field(propertyID uint32, kind query.Type, key string) uint32 {
	if kind < query.Map {
		kind = query.String
	}
	if id, known := t.writer.fields[fieldKey{propertyID, kind, key}]; known {
		return id
	}
	id := t.number(graveField, t.state.fields.len())
	f := &field{property: propertyID, kind: kind, key: strings.Clone(key)}
	if kind == query.Map {
		f.keyJSON = quoted(key) + ":"
		p := t.editProperty(propertyID)
		p.keys = append(slices.Clip(p.keys), id)
	}
	*t.state.fields.edit(t.id, id) = f
	t.writer.fields[fieldKey{propertyID, kind, f.key}] = id
	return id
}

// term gives the number of the term that a leaf has in a field. The hash is that of the text.
func (t *transaction) term(fieldID uint32, leafType query.Type, text string, textHash uint64, empty bool) uint32 {
	info := termInfo(leafType)
	if empty {
		info |= infoEmpty
	}
	hash := hashWith(textHash, fieldID<<3|uint32(info&infoLeaf)|uint32(info&infoEmpty)>>1)
	recent := t.recent.at(hash)
	if recent.transaction == t.id && recent.field == fieldID && recent.kind == info && recent.text == text {
		return recent.number
	}
	number, found := t.termTable.find(hash, func(number uint32) bool {
		other := t.terms.at(number)
		return other.info().field() == fieldID && (other.info()^info)&(infoLeaf|infoEmpty) == 0 && t.textOf(other) == text
	})
	if !found {
		number = t.newTerm(fieldID, info, text, hash)
	}
	*recent = recentTerm{transaction: t.id, field: fieldID, kind: info, number: number, text: t.textOf(t.terms.at(number))}
	return number
}

// newTerm makes a term, of which info has the type and whether it is empty.
func (t *transaction) newTerm(fieldID uint32, info termInfo, text string, hash uint64) uint32 {
	leafType, empty := info.leaf(), info.empty()
	f := t.state.fields.get(fieldID)
	if leafType == query.String && isPlain(text) {
		info |= infoPlain
	}
	info = info.of(fieldID) | orderOf(f, text)
	if t.state.terms.len() == 0 {
		t.state.terms.edit(t.id, 0)
	}
	number := t.number(graveTerm, t.state.terms.len())
	e := t.terms.edit(t.id, number)
	t.dropText(e)
	*e = term{stored: t.storeText(text), rows: rowset{beside: info}}
	t.termTable.insert(t.id, hash, number)
	t.termCount++
	f.terms++
	p := t.editProperty(f.property)
	if !empty {
		t.fresh[f.property] = append(t.fresh[f.property], number)
		p.counts[info.order()>>4]++
		if f.kind == query.Map && f.key == "" {
			p.emptyKeys++
		}
	}
	if indexed(p, info) {
		eachTrigram(f, text, func(trigram uint32) { t.trigramTerms.add(trigram, number) })
		if t.trigramTerms.full() {
			t.flushTrigrams()
		}
	}
	return number
}

func (t *transaction) hashTerm(number uint32) uint64 {
	info := t.terms.at(number).info()
	return hashOf(t.textOf(t.terms.at(number)), info.field()<<3|uint32(info&infoLeaf)|uint32(info&infoEmpty)>>1)
}

// orderOf tells how the text of a leaf is ordered.
func orderOf(f *field, text string) termInfo {
	if f.kind == query.Map {
		return orderText
	}
	if _, is := query.ParseNumber(text); is {
		return orderNum
	}
	if query.IsTime(text) {
		if len(text) == len("2006-01-02T15:04:05Z") {
			return orderTime
		}
		return orderOdd
	}
	return orderText
}

// prepare adds what is pending, and puts the new terms in order. Meanwhile, write is called,
// which must only read.
func (t *transaction) prepare(write func() error) error {
	t.flushRows()
	for id := range t.fresh {
		t.editProperty(id)
	}
	if len(t.trigramTerms.pairs) < manyPairs {
		t.flushTrigrams()
		t.order()
		return write()
	}
	// None of these reads what another changes.
	var wait sync.WaitGroup
	wait.Go(t.flushTrigrams)
	wait.Go(t.order)
	err := write()
	wait.Wait()
	return err
}

// finish brings what is derived up to date, before the state is published.
func (t *transaction) finish() {
	t.fresh = map[uint32][]uint32{}
	dead := map[uint32][]uint32{}
	slices.Sort(t.emptied)
	emptied := slices.Compact(t.emptied)
	for _, number := range emptied {
		if e := t.terms.at(number); e.rows.empty() && !e.info().empty() {
			id := t.state.fields.get(e.info().field()).property
			dead[id] = append(dead[id], number)
		}
	}
	for id, terms := range dead {
		p := t.editProperty(id)
		p.order = t.without(p.order, terms)
	}
	for _, number := range emptied {
		if e := t.terms.at(number); e.rows.empty() {
			t.forget(number, e)
		}
	}
	t.emptied = t.emptied[:0]
	t.forgetProperties()
	t.packTexts()
	for _, p := range [...]*pending{&t.termRows, &t.variantRows, &t.trigramTerms} {
		p.shrink()
	}
	if len(t.moved) > 2*movedLimit {
		t.firstMoved += uint64(len(t.moved) - movedLimit)
		t.moved = slices.Clone(t.moved[len(t.moved)-movedLimit:])
	}
	if len(t.touched) > 2*touchedLimit {
		t.firstTouched += uint64(len(t.touched) - touchedLimit)
		t.touched = slices.Clone(t.touched[len(t.touched)-touchedLimit:])
	}
}

const (
	// manyTerms are so many new terms that it is worth ordering them with all processors.
	manyTerms = 1 << 16
	// manyPairs are so many new pairs of trigrams and terms that it is worth doing something else meanwhile.
	manyPairs = 1 << 13
)

// order puts the new terms into the order of their properties.
func (t *transaction) order() {
	count := 0
	for _, terms := range t.fresh {
		count += len(terms)
	}
	var wait sync.WaitGroup
	for id, terms := range t.fresh {
		p := t.properties.get(id)
		if count < manyTerms {
			p.order = t.state.insert(p.order, terms)
			continue
		}
		// Ordering changes nothing but the property, and waits for all of them here.
		wait.Go(func() { p.order = t.state.insert(p.order, terms) })
	}
	wait.Wait()
}

// forget gives up a term without rows. Its text stays as long as changes may need it.
func (t *transaction) forget(number uint32, e *term) {
	info, text := e.info(), t.textOf(e)
	t.termTable.remove(t.id, t.hashTerm(number), number)
	t.termCount--
	id := info.field()
	f := t.state.fields.get(id)
	p := t.editProperty(f.property)
	if indexed(p, info) {
		eachTrigram(f, text, func(trigram uint32) { t.trigrams.edit(t.id, trigram).remove(t.id, number) })
	}
	if !info.empty() {
		p.counts[info.order()>>4]--
		if f.kind == query.Map && f.key == "" {
			p.emptyKeys--
		}
	}
	t.bury(graveTerm, number)
	if f.terms--; f.terms > 0 {
		return
	}
	delete(t.writer.fields, fieldKey{f.property, f.kind, f.key})
	if f.kind == query.Map {
		p.keys = slices.DeleteFunc(slices.Clone(p.keys), func(key uint32) bool { return key == id })
	}
	t.bury(graveField, id)
}

// forgetProperties gives up properties that no row has.
func (t *transaction) forgetProperties() {
	slices.Sort(t.hollow)
	for _, id := range slices.Compact(t.hollow) {
		p := t.properties.get(id)
		gone := t.propertyNames[p.name] == id
		for i := range p.variants {
			gone = gone && p.variants[i].empty()
		}
		if gone {
			t.cloneNames()
			delete(t.propertyNames, p.name)
			t.bury(graveProperty, id)
		}
	}
	t.hollow = t.hollow[:0]
}
