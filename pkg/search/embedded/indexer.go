package embedded

import "open-cluster-management.io/hub-apiserver/pkg/search/query"

// indexer changes the postings of terms and variants, which are the rows that contain them.
type indexer struct {
	*dictionaryWriter
	*indexerMemory
}

// indexerMemory is the memory that indexers keep between transactions. Pending rows are added when
// there are many of them, and before postings are read.
type indexerMemory struct {
	termRows, variantRows pending
}

// add adds a row that has not been indexed yet.
func (x *indexer) add(row uint32, found *parts) {
	for _, id := range found.terms {
		x.termRows.add(id, row)
	}
	for _, id := range found.variants {
		x.variantRows.add(id, row)
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
		x.terms.edit(x.id, id).postings.add(x.id, row)
		x.setTimes(id, row)
	}
	removed, added = difference(before.variants, now.variants)
	for _, id := range removed {
		x.removeFromVariant(id, row)
	}
	for _, id := range added {
		x.variant(id).add(x.id, row)
	}
}

func (x *indexer) removeFromTerm(id, row uint32) {
	x.clearTime(id, row)
	e := x.terms.edit(x.id, id)
	if e.postings.remove(x.id, row); e.postings.empty() {
		x.emptied = append(x.emptied, id)
	}
}

func (x *indexer) removeFromVariant(id, row uint32) {
	set := x.variant(id)
	if set.remove(x.id, row); set.empty() {
		x.emptyProperties = append(x.emptyProperties, id/uint32(variantCount))
	}
}

// A variant is identified by the number of the property and the number of the variant, combined in
// one number.
func variantOf(propertyID uint32, variant int) uint32 {
	return propertyID*uint32(variantCount) + uint32(variant)
}

// variant returns the postings of a variant.
func (x *indexer) variant(id uint32) *postings {
	return &x.editProperty(id / uint32(variantCount)).variants[id%uint32(variantCount)]
}

// flush adds the pending rows.
func (x *indexer) flush() {
	x.termRows.flush(func(id uint32, rows []uint32) {
		x.terms.edit(x.id, id).postings.addMany(x.id, rows)
		x.setTimes(id, rows...)
	})
	x.variantRows.flush(func(id uint32, rows []uint32) { x.variant(id).addMany(x.id, rows) })
}

// setTimes stores the time of a term for rows, if the term is a time that is stored by row.
func (x *indexer) setTimes(number uint32, rows ...uint32) {
	if e := x.terms.at(number); x.storedByRow(e) {
		at, _ := query.ParseTime(e.text)
		p := x.editProperty(x.fields.get(e.info().field()).property)
		for _, row := range rows {
			*p.times.edit(x.id, row) = timeValue(at)
		}
	}
}

// clearTime removes the time of a row.
func (x *indexer) clearTime(number, row uint32) {
	if e := x.terms.at(number); x.storedByRow(e) {
		*x.editProperty(x.fields.get(e.info().field()).property).times.edit(x.id, row) = 0
	}
}
