package embedded

// packSize is the number of small lists that share memory after loading.
const packSize = 512

// packer copies loaded lists into memory of the exact size. Small lists share memory, which is kept
// as long as one of them exists. A list that changes gets its own memory.
type packer struct {
	lists []postingList
	rows  []uint32
	ends  []end
}

// packed returns a copy of values without spare capacity. rest is the memory that small copies
// share.
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

// pack packs the list of postings.
func (p *packer) pack(s *postings) {
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
	s.many = &packed(&p.lists, []postingList{one})[0]
}

// compact frees memory that was used for loading. Only the transaction that loads may call it,
// before its state is published.
func (t *transaction) compact() {
	var p packer
	t.terms.each(func(_ uint32, terms *[leafSize]term) {
		for i := range terms {
			p.pack(&terms[i].postings)
		}
	})
	t.trigrams.each(func(_ uint32, sets *[leafSize]postings) {
		for i := range sets {
			p.pack(&sets[i])
		}
	})
	t.classes.each(func(_ uint32, classes *[leafSize]class) {
		for i := range classes {
			p.pack(&classes[i].rows)
		}
	})
	t.properties.each(func(_ uint32, properties *[leafSize]*property) {
		for _, property := range properties {
			if property == nil {
				continue
			}
			for i := range property.variants {
				p.pack(&property.variants[i])
			}
		}
	})
	t.adjacency.each(func(_ uint32, rows *[leafSize][]end) {
		for i := range rows {
			rows[i] = packed(&p.ends, rows[i])
		}
	})
	for _, c := range t.clusters {
		p.pack(&c.rows)
		p.pack(&c.secrets)
	}
}
