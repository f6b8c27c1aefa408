package embedded

import "open-cluster-management.io/hub-apiserver/pkg/search/query"

// indexer changes the postings of terms and variants, which are the rows that contain them.
type indexer struct {
	dictionaryWriter *dictionaryWriter
	indexerMemory    *indexerMemory
}

// indexerMemory is the memory that indexers keep between transactions. Pending rows are added when
// there are many of them, and before postings are read.
type indexerMemory struct {
	termRows, variantRows pending
}

// add adds a row that has not been indexed yet.
func (x *indexer) add(row uint32, found *parts) {
	for _, id := range found.terms {
		x.indexerMemory.termRows.add(id, row)
	}
	for _, id := range found.variants {
		x.indexerMemory.variantRows.add(id, row)
	}
}

// remove removes a row.
func (x *indexer) remove(row uint32, found *parts) {
	for _, id := range found.terms {
		x.removeFromTerm(id, row)
	}
	for _, id := range found.variants {
		x.removeFromVariant(id, row)
	}
}

// replace changes the parts by which a row is found.
func (x *indexer) replace(row uint32, before, now *parts) {
	removed, added := difference(before.terms, now.terms)
	// One value of a property makes room for the next one, so the old terms are removed first.
	for _, id := range removed {
		x.removeFromTerm(id, row)
	}
	for _, id := range added {
		x.dictionaryWriter.dictionary.terms.edit(x.dictionaryWriter.id, id).postings.add(x.dictionaryWriter.id, row)
		x.setTimes(id, row)
	}
	removed, added = difference(before.variants, now.variants)
	for _, id := range removed {
		x.removeFromVariant(id, row)
	}
	for _, id := range added {
		x.variant(id).add(x.dictionaryWriter.id, row)
	}
}

func (x *indexer) removeFromTerm(id, row uint32) {
	x.clearTime(id, row)
	e := x.dictionaryWriter.dictionary.terms.edit(x.dictionaryWriter.id, id)
	if e.postings.remove(x.dictionaryWriter.id, row); e.postings.empty() {
		x.dictionaryWriter.emptied = append(x.dictionaryWriter.emptied, id)
	}
}

func (x *indexer) removeFromVariant(id, row uint32) {
	set := x.variant(id)
	if set.remove(x.dictionaryWriter.id, row); set.empty() {
		x.dictionaryWriter.emptyProperties = append(x.dictionaryWriter.emptyProperties, id/uint32(variantCount))
	}
}

// A variant is identified by the number of the property and the number of the variant, combined in
// one number.
func variantOf(propertyID uint32, variant int) uint32 {
	return propertyID*uint32(variantCount) + uint32(variant)
}

// variant returns the postings of a variant.
func (x *indexer) variant(id uint32) *postings {
	return &x.dictionaryWriter.editProperty(id / uint32(variantCount)).variants[id%uint32(variantCount)]
}

// flush adds the pending rows.
func (x *indexer) flush() {
	x.indexerMemory.termRows.flush(func(id uint32, rows []uint32) {
		x.dictionaryWriter.dictionary.terms.edit(x.dictionaryWriter.id, id).postings.addMany(x.dictionaryWriter.id, rows)
		x.setTimes(id, rows...)
	})
	x.indexerMemory.variantRows.flush(func(id uint32, rows []uint32) { x.variant(id).addMany(x.dictionaryWriter.id, rows) })
}

// setTimes stores the time of a term for rows, if the term is a time that is stored by row.
func (x *indexer) setTimes(number uint32, rows ...uint32) {
	if e := x.dictionaryWriter.dictionary.terms.at(number); x.dictionaryWriter.dictionary.storedByRow(e) {
		at, _ := query.ParseTime(e.text)
		p := x.dictionaryWriter.editProperty(x.dictionaryWriter.dictionary.fields.get(e.info().field()).property)
		for _, row := range rows {
			*p.times.edit(x.dictionaryWriter.id, row) = timeValue(at)
		}
	}
}

// clearTime removes the time of a row.
func (x *indexer) clearTime(number, row uint32) {
	if e := x.dictionaryWriter.dictionary.terms.at(number); x.dictionaryWriter.dictionary.storedByRow(e) {
		*x.dictionaryWriter.editProperty(x.dictionaryWriter.dictionary.fields.get(e.info().field()).property).times.edit(x.dictionaryWriter.id, row) = 0
	}
}
