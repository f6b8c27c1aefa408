package embedded

import (
	"maps"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// dictionaryWriter changes the dictionary in a transaction.
type dictionaryWriter struct {
	dictionary       *dictionary
	dictionaryMemory *dictionaryMemory
	id               uint64
	free             *freeList

	// fresh are the new terms by property. emptied are the terms that lost their last row.
	fresh   map[uint32][]uint32
	emptied []uint32
	// emptyProperties are the properties that lost the last row of a variant.
	emptyProperties []uint32
	// fewerKeys are the properties that lost a key.
	fewerKeys []uint32
	// ownNames is true if the map of names already belongs to the transaction.
	ownNames bool
}

// dictionaryMemory is the memory that dictionaryWriters keep between transactions.
type dictionaryMemory struct {
	fieldNumbers map[fieldKey]uint32
	// trigramTerms are terms that must still be added to the postings of trigrams.
	trigramTerms pending
}

type fieldKey struct {
	property uint32
	kind     query.Type
	key      string
}

// newDictionaryMemory derives the memory from a state. It counts the terms of fields again, so that
// an abandoned transaction has no effect.
func newDictionaryMemory(s *state) *dictionaryMemory {
	m := &dictionaryMemory{fieldNumbers: map[fieldKey]uint32{}}
	for i := range uint32(s.fields.len()) {
		if f := s.fields.get(i); f != nil {
			f.terms = 0
		}
	}
	for i := uint32(1); i < uint32(s.terms.len()); i++ {
		if e := s.terms.at(i); !e.postings.empty() {
			s.fields.get(e.info().field()).terms++
		}
	}
	for i := range uint32(s.fields.len()) {
		if f := s.fields.get(i); f != nil && f.terms > 0 {
			m.fieldNumbers[fieldKey{f.property, f.kind, f.key}] = i
		}
	}
	return m
}

// property returns the number of a property.
func (d *dictionaryWriter) property(name string) uint32 {
	if id, known := d.dictionary.propertyNames[name]; known {
		return id
	}
	d.cloneNames()
	id := d.free.take(propertyNumbers, d.dictionary.properties.len())
	name = strings.Clone(name)
	d.dictionary.propertyNames[name] = id
	*d.dictionary.properties.edit(d.id, id) = newProperty(d.id, name)
	return id
}

func newProperty(owner uint64, name string) *property {
	internal := isInternal(name)
	return &property{
		owner: owner, name: name, hidden: internal || query.Hidden(name), internal: internal, json: jsonKey(name),
	}
}

func (d *dictionaryWriter) cloneNames() {
	if !d.ownNames {
		d.dictionary.propertyNames, d.ownNames = maps.Clone(d.dictionary.propertyNames), true
	}
}

// editProperty returns a property that the transaction is allowed to change.
func (d *dictionaryWriter) editProperty(id uint32) *property {
	p := d.dictionary.properties.get(id)
	if p.owner == d.id {
		return p
	}
	owned := *p
	owned.owner = d.id
	*d.dictionary.properties.edit(d.id, id) = &owned
	return &owned
}

// field returns the number of a field.
func (d *dictionaryWriter) field(propertyID uint32, kind query.Type, key string) uint32 {
	if kind < query.Map {
		kind = query.String
	}
	if id, known := d.dictionaryMemory.fieldNumbers[fieldKey{propertyID, kind, key}]; known {
		return id
	}
	id := d.free.take(fieldNumbers, d.dictionary.fields.len())
	f := newField(propertyID, kind, strings.Clone(key))
	if kind == query.Map {
		// Appending does not change the part of the memory that older states read.
		p := d.editProperty(propertyID)
		p.keys = append(p.keys, id)
	}
	*d.dictionary.fields.edit(d.id, id) = f
	d.dictionaryMemory.fieldNumbers[fieldKey{propertyID, kind, f.key}] = id
	return id
}

func newField(propertyID uint32, kind query.Type, key string) *field {
	f := &field{property: propertyID, kind: kind, key: key}
	if kind == query.Map {
		f.keyJSON = jsonKey(key)
	}
	return f
}

// term returns the number of the term of a leaf in a field.
func (d *dictionaryWriter) term(fieldID uint32, leafType query.Type, text string, empty bool) uint32 {
	info := termInfo(leafType)
	if empty {
		info |= infoEmpty
	}
	hash := hashTerm(hashText(text), fieldID, info)
	number, found := d.dictionary.termTable.find(hash, func(number uint32) bool {
		other := d.dictionary.terms.at(number)
		return other.info().field() == fieldID && (other.info()^info)&(infoLeaf|infoEmpty) == 0 && other.text == text
	})
	if found {
		return number
	}
	return d.newTerm(fieldID, info, text, hash)
}

func hashTerm(textHash uint64, field uint32, info termInfo) uint64 {
	return hashWith(textHash, field<<3|uint32(info&infoLeaf)|uint32(info&infoEmpty)>>1)
}

// newTerm creates a term. info contains the type and whether the term is empty.
func (d *dictionaryWriter) newTerm(fieldID uint32, info termInfo, text string, hash uint64) uint32 {
	f := d.dictionary.fields.get(fieldID)
	if info.leaf() == query.String && isPlain(text) {
		info |= infoPlain
	}
	info = info.of(fieldID) | orderOf(f, text)
	if d.dictionary.terms.len() == 0 {
		d.dictionary.terms.edit(d.id, 0)
	}
	number := d.free.take(termNumbers, d.dictionary.terms.len())
	e := d.dictionary.terms.edit(d.id, number)
	*e = term{text: strings.Clone(text), postings: postings{info: info}}
	d.dictionary.termTable.insert(d.id, hash, number)
	d.dictionary.termCount++
	f.terms++
	p := d.editProperty(f.property)
	if !info.empty() && !p.internal {
		d.fresh[f.property] = append(d.fresh[f.property], number)
		p.counts[info.order()>>4]++
		if f.kind == query.Map && f.key == "" {
			p.emptyKeys++
		}
	}
	if indexed(p, info) {
		eachTrigram(f, text, func(trigram uint32) { d.dictionaryMemory.trigramTerms.add(trigram, number) })
		if d.dictionaryMemory.trigramTerms.full() {
			d.flushTrigrams()
		}
	}
	return number
}

// orderOf returns the kind of order for the text of a leaf.
func orderOf(f *field, text string) termInfo {
	if f.kind == query.Map {
		return orderText
	}
	if _, ok := query.ParseNumber(text); ok {
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

// flushTrigrams adds the pending terms to the postings of trigrams.
func (d *dictionaryWriter) flushTrigrams() {
	d.dictionaryMemory.trigramTerms.flush(func(trigram uint32, terms []uint32) { d.dictionary.trigrams.edit(d.id, trigram).addMany(d.id, terms) })
}

// order inserts the new terms into the order of their properties. It changes only properties that
// the transaction owns.
func (d *dictionaryWriter) order() {
	for id, terms := range d.fresh {
		p := d.dictionary.properties.get(id)
		p.order = d.dictionary.insert(p.order, terms)
	}
}

// removeUnused removes terms, fields and properties that no row uses.
func (d *dictionaryWriter) removeUnused(version uint64) {
	slices.Sort(d.emptied)
	emptied := slices.Compact(d.emptied)
	unused := map[uint32][]uint32{}
	for _, number := range emptied {
		if e := d.dictionary.terms.at(number); e.postings.empty() && !e.info().empty() {
			if id := d.dictionary.fields.get(e.info().field()).property; !d.dictionary.properties.get(id).internal {
				unused[id] = append(unused[id], number)
			}
		}
	}
	for id, terms := range unused {
		p := d.editProperty(id)
		p.order = d.dictionary.without(p.order, terms)
	}
	for _, number := range emptied {
		if e := d.dictionary.terms.at(number); e.postings.empty() {
			d.removeTerm(number, e, version)
		}
	}
	slices.Sort(d.fewerKeys)
	for _, id := range slices.Compact(d.fewerKeys) {
		p := d.editProperty(id)
		p.keys = slices.DeleteFunc(slices.Clone(p.keys), func(key uint32) bool { return d.dictionary.fields.get(key).terms == 0 })
	}
	slices.Sort(d.emptyProperties)
	for _, id := range slices.Compact(d.emptyProperties) {
		d.removeProperty(id, version)
	}
}

// removeTerm removes a term without rows. Its text is kept as long as changes may refer to it.
func (d *dictionaryWriter) removeTerm(number uint32, e *term, version uint64) {
	info, text := e.info(), e.text
	id := info.field()
	d.dictionary.termTable.remove(d.id, hashTerm(hashText(text), id, info), number)
	d.dictionary.termCount--
	f := d.dictionary.fields.get(id)
	p := d.editProperty(f.property)
	if indexed(p, info) {
		eachTrigram(f, text, func(trigram uint32) { d.dictionary.trigrams.edit(d.id, trigram).remove(d.id, number) })
	}
	if !info.empty() && !p.internal {
		p.counts[info.order()>>4]--
		if f.kind == query.Map && f.key == "" {
			p.emptyKeys--
		}
	}
	d.free.retire(termNumbers, number, version)
	if f.terms--; f.terms > 0 {
		return
	}
	delete(d.dictionaryMemory.fieldNumbers, fieldKey{f.property, f.kind, f.key})
	if f.kind == query.Map {
		d.fewerKeys = append(d.fewerKeys, f.property)
	}
	d.free.retire(fieldNumbers, id, version)
}

// removeProperty removes a property if no row uses it.
func (d *dictionaryWriter) removeProperty(id uint32, version uint64) {
	p := d.dictionary.properties.get(id)
	if d.dictionary.propertyNames[p.name] != id || slices.ContainsFunc(p.variants[:], func(rows postings) bool { return !rows.empty() }) {
		return
	}
	d.cloneNames()
	delete(d.dictionary.propertyNames, p.name)
	d.free.retire(propertyNumbers, id, version)
}
