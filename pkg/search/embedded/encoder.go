package embedded

import (
	"encoding/binary"
	"slices"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// encode appends the terms of properties as the data of a row. It creates new terms.
func (d *dictionaryWriter) encode(data []byte, properties query.Properties) []byte {
	for i := range properties {
		p := &properties[i]
		property := d.property(p.Name)
		if len(p.Leaves) == 0 {
			data = binary.AppendUvarint(data, uint64(d.term(d.field(property, p.Type, ""), query.String, "", true)))
		}
		for _, leaf := range p.Leaves {
			data = binary.AppendUvarint(data, uint64(d.term(d.field(property, p.Type, leaf.Key), leaf.Type, leaf.Text, false)))
		}
	}
	return data
}

// parts are the terms and variants by which a row is found.
type parts struct {
	terms, variants []uint32
	// named is the term of the name. kind is the term of the kind.
	named, kind uint32
}

// partsOf sets found to the parts by which a row with the given data is found.
func (d *dictionary) partsOf(data string, found *parts) {
	*found = parts{terms: found.terms[:0], variants: found.variants[:0]}
	last := ^uint32(0)
	for id, t := range d.termsOf(data) {
		found.terms = append(found.terms, id)
		info := t.info()
		f := d.fields.get(info.field())
		if f.property == last {
			continue
		}
		last = f.property
		variant := int(f.kind)
		if f.kind < query.Map {
			variant = int(info.leaf())
			switch d.properties.get(last).name {
			case query.Name:
				found.named = id
			case query.Kind:
				found.kind = id
			}
			if info.leaf() == query.String && info.isTime() {
				variant = variantTime
			}
		}
		found.variants = append(found.variants, variantOf(last, variant))
	}
}

// difference sorts both lists. It returns the numbers that are only in before, and the numbers that
// are only in now.
func difference(before, now []uint32) (removed, added []uint32) {
	slices.Sort(before)
	slices.Sort(now)
	return without(before, now), without(now, before)
}

// without returns the numbers of a sorted list that another list does not contain. It returns each
// number once.
func without(numbers, others []uint32) []uint32 {
	var rest []uint32
	for i, number := range numbers {
		if i > 0 && numbers[i-1] == number {
			continue
		}
		if _, found := slices.BinarySearch(others, number); !found {
			rest = append(rest, number)
		}
	}
	return rest
}
