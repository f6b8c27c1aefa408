package embedded

// packSize is how many small things share memory once they are loaded.
const packSize = 512

// packer puts what is loaded into memory of its right size. As with data of rows, see slab, many small things
// share it: they are lists that are replaced when they change.
type packer struct {
	postings []posting
	rows     []uint32
	ends     []end
}

// packed is a copy of values without room for more, which shares memory where there are few. Rest is the memory
// that is left to be shared.
func packed[T any](rest *[]T, values []T) []T {
	switch {
	case len(values) == 0:
		return nil
	case len(values) > packSize/8:
		return append(make([]T, 0, len(values)), values...)
	case len(values) > len(*rest):
		*rest = make([]T, packSize)
	}
	copied := (*rest)[:len(values):len(values)]
	copy(copied, values)
	*rest = (*rest)[len(values):]
	return copied
}

// rowset packs a set.
func (p *packer) rowset(s *rowset) {
	if s.many == nil {
		return
	}
	one := *s.many
	one.list = packed(&p.rows, one.list)
	if one.bitmap != nil {
		one.bitmap.SetCopyOnWrite(false)
		one.bitmap = one.bitmap.Clone()
		one.bitmap.SetCopyOnWrite(true)
	}
	s.many = &packed(&p.postings, []posting{one})[0]
}

// compact gives up memory that is left from loading. Only the transaction that has
// loaded may do this, before others see its state.
func (t *transaction) compact() {
	var p packer
	t.terms.each(func(_ uint32, terms *[leafSize]term) {
		for i := range terms {
			p.rowset(&terms[i].rows)
		}
	})
	t.trigrams.each(func(_ uint32, sets *[leafSize]rowset) {
		for i := range sets {
			p.rowset(&sets[i])
		}
	})
	t.classes.each(func(_ uint32, classes *[leafSize]class) {
		for i := range classes {
			p.rowset(&classes[i].rows)
		}
	})
	t.properties.each(func(_ uint32, properties *[leafSize]*property) {
		for _, property := range properties {
			if property == nil {
				continue
			}
			for i := range property.variants {
				p.rowset(&property.variants[i])
			}
		}
	})
	t.adjacency.each(func(_ uint32, rows *[leafSize][]end) {
		for i := range rows {
			rows[i] = packed(&p.ends, rows[i])
		}
	})
	for _, c := range t.clusters {
		p.rowset(&c.rows)
		p.rowset(&c.secrets)
	}
}
