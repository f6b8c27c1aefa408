package embedded

import "slices"

// compact gives up memory that is left from loading. Only the transaction that has
// loaded may do this, before others see its state.
func (t *transaction) compact() {
	t.terms.each(func(_ uint32, terms *[leafSize]term) {
		for i := range terms {
			terms[i].rows.compact()
		}
	})
	t.trigrams.each(func(_ uint32, sets *[leafSize]rowset) {
		for i := range sets {
			sets[i].compact()
		}
	})
	t.classes.each(func(_ uint32, classes *[leafSize]class) {
		for i := range classes {
			classes[i].rows.compact()
		}
	})
	t.properties.each(func(_ uint32, properties *[leafSize]*property) {
		for _, p := range properties {
			if p == nil {
				continue
			}
			for i := range p.variants {
				p.variants[i].compact()
			}
		}
	})
	t.adjacency.each(func(_ uint32, rows *[leafSize][]end) {
		for i := range rows {
			rows[i] = slices.Clip(slices.Clone(rows[i]))
		}
	})
	for _, c := range t.clusters {
		c.rows.compact()
		c.secrets.compact()
	}
}
