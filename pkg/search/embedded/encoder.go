package embedded

import (
	"encoding/binary"
	"slices"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// encoder encodes properties as the data of rows, and creates new terms.
type encoder struct {
	*dictionaryWriter
	// shape contains the properties of the previous row. The next row often has the same
	// properties.
	shape []shapePart
}

// shapePart is a property and its place in a row.
type shapePart struct {
	name     string
	property uint32
	// field is the field of values that are no maps or lists, if hasField is true.
	field    uint32
	hasField bool
}

// parts are the terms and variants by which a row is found.
type parts struct {
	terms, variants []uint32
	// named is the term of the name. kind is the term of the kind.
	named, kind uint32
}

// part returns the shape of the property at the given place of a row.
func (c *encoder) part(place int, name string) *shapePart {
	for at := place; at < min(place+2, len(c.shape)); at++ {
		if c.shape[at].name == name {
			return &c.shape[at]
		}
	}
	id := c.property(name)
	part := shapePart{name: c.properties.get(id).name, property: id}
	if place >= len(c.shape) {
		c.shape = append(c.shape, part)
		return &c.shape[len(c.shape)-1]
	}
	c.shape[place] = part
	return &c.shape[place]
}

// scalarField returns the field of values that are neither maps nor lists.
func (c *encoder) scalarField(part *shapePart) uint32 {
	if !part.hasField {
		part.field, part.hasField = c.field(part.property, query.String, ""), true
	}
	return part.field
}

// encode appends the terms of properties, and sets found to the parts by which a row with these
// properties is found. hashes are the hashes of the texts of the leaves.
func (c *encoder) encode(data []byte, properties query.Properties, hashes []uint64, found *parts) []byte {
	*found = parts{terms: found.terms[:0], variants: found.variants[:0]}
	for i := range properties {
		p := &properties[i]
		part := c.part(i, p.Name)
		propertyID := part.property
		if len(p.Leaves) == 0 {
			id := c.term(c.field(propertyID, p.Type, ""), query.String, "", hashText(""), true)
			data = binary.AppendUvarint(data, uint64(id))
			found.terms = append(found.terms, id)
			found.variants = append(found.variants, variantOf(propertyID, int(p.Type)), variantOf(propertyID, emptyVariant))
			continue
		}
		var id uint32
		fieldID := uint32(0)
		for j := range p.Leaves {
			leaf := &p.Leaves[j]
			switch {
			case p.Type < query.Map:
				fieldID = c.scalarField(part)
			case j == 0 || p.Type == query.Map:
				fieldID = c.field(propertyID, p.Type, leaf.Key)
			}
			id = c.term(fieldID, leaf.Type, leaf.Text, hashes[j], false)
			data = binary.AppendUvarint(data, uint64(id))
			found.terms = append(found.terms, id)
		}
		hashes = hashes[len(p.Leaves):]
		variant := int(p.Type)
		if p.Type == query.String && c.terms.at(id).info().isTime() {
			variant = variantTime
		}
		found.variants = append(found.variants, variantOf(propertyID, variant))
		if p.Type < query.Map {
			found.note(p.Name, id)
		}
	}
	return data
}

func (f *parts) note(property string, id uint32) {
	switch property {
	case query.Name:
		f.named = id
	case query.Kind:
		f.kind = id
	}
}

// partsOf sets found to the parts by which a row with the given data is found.
func (d *dictionary) partsOf(data string, found *parts) {
	*found = parts{terms: found.terms[:0], variants: found.variants[:0]}
	last := ^uint32(0)
	for at := uidEnd(data); at < len(data); {
		var id uint32
		id, at = uvarint(data, at)
		found.terms = append(found.terms, id)
		info := d.terms.at(id).info()
		f := d.fields.get(info.field())
		if f.property == last {
			continue
		}
		last = f.property
		variant := int(f.kind)
		if f.kind < query.Map {
			variant = int(info.leaf())
			found.note(d.properties.get(last).name, id)
			if info.leaf() == query.String && info.isTime() {
				variant = variantTime
			}
		}
		found.variants = append(found.variants, variantOf(last, variant))
		if info.empty() {
			found.variants = append(found.variants, variantOf(last, emptyVariant))
		}
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
