package embedded

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"unique"

	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// scratch is memory that a transaction uses again for each row.
type scratch struct {
	data   []byte
	uid    []byte
	hashes []uint64
	before parts
	now    parts
	// shape are the properties of the row before, which the next one often has too.
	shape []shapePart
}

// shapePart is a property at its place in a row.
type shapePart struct {
	name     string
	property uint32
	// field is that of values that are no maps or lists, if hasField is true.
	field    uint32
	hasField bool
}

// shapeOf gives the part for the property at a place of a row.
func (t *transaction) shapeOf(place int, name string) *shapePart {
	shape := t.scratch.shape
	for at := place; at < min(place+2, len(shape)); at++ {
		if shape[at].name == name {
			return &shape[at]
		}
	}
	id := t.property(name)
	part := shapePart{name: t.properties.get(id).name, property: id}
	if place >= len(shape) {
		t.scratch.shape = append(shape, part)
		return &t.scratch.shape[len(shape)]
	}
	shape[place] = part
	return &shape[place]
}

// scalarField gives the field of values that are no maps or lists.
func (t *transaction) scalarField(part *shapePart) uint32 {
	if !part.hasField {
		part.field, part.hasField = t.field(part.property, query.String, ""), true
	}
	return part.field
}

// parts are what a row is found by.
type parts struct {
	terms, variants []uint32
	// named is the term of the name, kind that of the kind.
	named, kind uint32
}

// Outcomes of put.
const (
	unchanged = iota
	added
	updated
)

// put stores a resource, and gives its row.
func (t *transaction) put(c *cluster, resource *search.Resource) (number uint32, outcome int) {
	properties := normalized(resource.Properties)
	uid, _ := appendUID(t.scratch.uid[:0], c.name, resource.UID)
	t.scratch.uid = uid
	data := append(t.scratch.data[:0], uid...)
	now := &t.scratch.now
	t.scratch.hashes = appendHashes(t.scratch.hashes[:0], properties)
	data = t.encode(data, properties, t.scratch.hashes, now)
	t.scratch.data = data

	number, known := t.findRow(c.id, uid)
	if known && t.rows.at(number).exists() {
		old := *t.rows.at(number)
		if old.data == string(data) && t.classes.at(old.class).class.Hub == c.hub {
			return number, unchanged
		}
		t.replace(number, old, string(data), c, properties)
		return number, updated
	}
	if !known {
		number = t.newRow(c, uid)
	}
	t.fill(number, t.rowSlab.keep(data), c, search.ClassOf(c.name, c.hub, properties), t.version, now)
	if t.termRows.full() {
		t.flushRows()
	}
	if t.recording {
		t.changes = append(t.changes, change{version: t.version, cluster: c.id, hub: c.hub, after: t.rows.at(number).data})
	}
	return number, added
}

// fill makes a row that nothing was known of, or only edges, a resource.
func (t *transaction) fill(number uint32, data string, c *cluster, in visibility.Class, version uint64, now *parts) {
	c.unknown.remove(t.id, number)
	class := t.class(c, in)
	t.classes.edit(t.id, class).rows.add(t.id, number)
	*t.rows.edit(t.id, number) = row{data: data, version: version, class: class, kind: now.kind}
	for _, id := range now.terms {
		t.termRows.add(id, number)
	}
	for _, id := range now.variants {
		t.variantRows.add(id, number)
	}
	c.rows.add(t.id, number)
	if secret(in) {
		c.secrets.add(t.id, number)
	}
	t.visible++
	t.moved = append(t.moved, number)
	t.stored.row(c.id, number)
}

// replace changes a resource. What it is found by now is in the scratch.
func (t *transaction) replace(number uint32, old row, data string, c *cluster, properties query.Properties) {
	t.flushRows()
	now, before := &t.scratch.now, &t.scratch.before
	t.partsOf(old.data, before)
	in := search.ClassOf(c.name, c.hub, properties)
	moved := now.named != before.named
	class := old.class
	if was := t.classes.at(old.class).class; was != in {
		moved = true
		t.leaveClass(number, old.class, c)
		class = t.class(c, in)
		t.classes.edit(t.id, class).rows.add(t.id, number)
		if secret(in) {
			c.secrets.add(t.id, number)
		} else {
			c.secrets.remove(t.id, number)
		}
	}
	*t.rows.edit(t.id, number) = row{data: data, version: t.version, class: class, kind: now.kind}
	t.touchLists(number, before.terms, now.terms)
	// What goes goes first: one value of a property makes room for the next.
	difference(before.terms, now.terms, func(id uint32) {
		t.touch(number, id)
		t.removeTerm(id, number)
	}, func(uint32) {})
	difference(before.terms, now.terms, func(uint32) {}, func(id uint32) {
		t.touch(number, id)
		t.terms.edit(t.id, id).rows.add(t.id, number)
		t.setTimes(id, number)
	})
	difference(before.variants, now.variants, func(id uint32) { t.removeVariant(id, number) }, func(id uint32) {
		t.addVariant(id, number)
	})
	if moved {
		t.moved = append(t.moved, number)
	}
	t.stored.row(c.id, number)
	if t.recording {
		t.changes = append(t.changes, change{version: t.version, cluster: c.id, hub: c.hub, before: old.data, after: data})
	}
}

// touch notes that a row gets or loses a term.
func (t *transaction) touch(row, term uint32) {
	t.touched = append(t.touched, touch{row: row, property: t.state.fields.get(t.terms.at(term).info().field()).property})
}

// touchLists notes the lists of a row that may differ in nothing but their order. The terms are in
// that of the data.
func (t *transaction) touchLists(row uint32, before, now []uint32) {
	for i := range before {
		if i < len(now) && before[i] == now[i] {
			continue
		}
		if t.state.fields.get(t.terms.at(before[i]).info().field()).kind == query.List {
			t.touch(row, before[i])
		}
	}
}

// difference calls gone for what is in before only, and come for what is in now only.
func difference(before, now []uint32, gone, come func(uint32)) {
	slices.Sort(before)
	slices.Sort(now)
	i, j := 0, 0
	for i < len(before) || j < len(now) {
		switch {
		case j == len(now) || i < len(before) && before[i] < now[j]:
			gone(before[i])
			for id := before[i]; i < len(before) && before[i] == id; {
				i++
			}
		case i == len(before) || now[j] < before[i]:
			come(now[j])
			for id := now[j]; j < len(now) && now[j] == id; {
				j++
			}
		default:
			for id := before[i]; i < len(before) && before[i] == id; {
				i++
			}
			for id := now[j]; j < len(now) && now[j] == id; {
				j++
			}
		}
	}
}

// remove removes a resource with its edges.
func (t *transaction) remove(number uint32, c *cluster, edges *edgeCounts) {
	t.flushRows()
	old := *t.rows.at(number)
	before := &t.scratch.before
	t.partsOf(old.data, before)
	t.removeEdges(number, c, edges)
	for _, id := range before.terms {
		t.removeTerm(id, number)
	}
	for _, id := range before.variants {
		t.removeVariant(id, number)
	}
	t.leaveClass(number, old.class, c)
	c.rows.remove(t.id, number)
	c.secrets.remove(t.id, number)
	t.visible--
	t.moved = append(t.moved, number)
	t.stored.gone(c.id, old.data[:uidEnd(old.data)])
	if t.recording {
		t.changes = append(t.changes, change{version: t.version, cluster: c.id, hub: c.hub, before: old.data})
	}
	*t.rows.edit(t.id, number) = row{data: old.data[:uidEnd(old.data)], class: c.pending}
	c.unknown.add(t.id, number)
	t.loose = append(t.loose, number)
}

// newRow makes a row that is not a resource yet.
func (t *transaction) newRow(c *cluster, uid []byte) uint32 {
	number := t.number(graveRow, t.rows.len())
	*t.rows.edit(t.id, number) = row{data: string(uid), class: c.pending}
	t.uids.insert(t.id, hashUID(c.id, uid), number)
	c.unknown.add(t.id, number)
	return number
}

// freeLoose gives up the rows that a report has left without a resource and without
// edges. Until the report ends they stay, so that a UID has one row throughout.
func (t *transaction) freeLoose(c *cluster) {
	for _, number := range t.loose {
		r := t.rows.at(number)
		if r.exists() || r.data == "" || len(t.adjacency.get(number)) > 0 {
			continue
		}
		t.stored.noEdges(c.id, r.data)
		t.uids.remove(t.id, t.hashRow(number), number)
		*t.rows.edit(t.id, number) = row{class: c.pending}
		c.unknown.remove(t.id, number)
		t.free[graveRow] = append(t.free[graveRow], number)
	}
	t.loose = t.loose[:0]
}

func (t *transaction) removeTerm(id, number uint32) {
	t.clearTime(id, number)
	e := t.terms.edit(t.id, id)
	if e.rows.remove(t.id, number); e.rows.empty() {
		t.emptied = append(t.emptied, id)
	}
}

// A variant is given as the number of the property and of the variant in one.
const emptyVariant = variantCount

func variantOf(propertyID uint32, variant int) uint32 {
	return propertyID*(uint32(variantCount)+1) + uint32(variant)
}

func (t *transaction) variant(id uint32) (uint32, *rowset) {
	propertyID, variant := id/(uint32(variantCount)+1), int(id%(uint32(variantCount)+1))
	p := t.editProperty(propertyID)
	if variant == emptyVariant {
		return propertyID, &p.empties
	}
	return propertyID, &p.variants[variant]
}

func (t *transaction) addVariant(id, number uint32) {
	_, set := t.variant(id)
	set.add(t.id, number)
}

func (t *transaction) removeVariant(id, number uint32) {
	propertyID, set := t.variant(id)
	if set.remove(t.id, number); set.empty() {
		t.hollow = append(t.hollow, propertyID)
	}
}

// encode appends the terms of properties, which are made if they are new, and notes
// what a row with them is found by. The hashes are those of the leaves' texts.
func (t *transaction) encode(data []byte, properties query.Properties, hashes []uint64, found *parts) []byte {
	found.terms, found.variants = found.terms[:0], found.variants[:0]
	found.named, found.kind = 0, 0
	for i := range properties {
		p := &properties[i]
		part := t.shapeOf(i, p.Name)
		propertyID := part.property
		if len(p.Leaves) == 0 {
			id := t.term(t.field(propertyID, p.Type, ""), query.String, "", hashText(""), true)
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
				fieldID = t.scalarField(part)
			case j == 0 || p.Type == query.Map:
				fieldID = t.field(propertyID, p.Type, leaf.Key)
			}
			id = t.term(fieldID, leaf.Type, leaf.Text, hashes[j], false)
			data = binary.AppendUvarint(data, uint64(id))
			found.terms = append(found.terms, id)
		}
		hashes = hashes[len(p.Leaves):]
		variant := int(p.Type)
		if p.Type == query.String && t.terms.at(id).info().isTime() {
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

// partsOf is what a row with these data is found by.
func (t *transaction) partsOf(data string, found *parts) {
	found.terms, found.variants = found.terms[:0], found.variants[:0]
	found.named, found.kind = 0, 0
	last := ^uint32(0)
	for at := uidEnd(data); at < len(data); {
		var id uint32
		id, at = uvarint(data, at)
		found.terms = append(found.terms, id)
		info := t.terms.at(id).info()
		f := t.state.fields.get(info.field())
		if f.property == last {
			continue
		}
		last = f.property
		variant := int(f.kind)
		if f.kind < query.Map {
			variant = int(info.leaf())
			found.note(t.properties.get(last).name, id)
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

// secret tells whether a class is one of Secrets on a managed cluster, which a right to
// the cluster does not include.
func secret(c visibility.Class) bool { return !c.Hub && c.Secret() }

// class gives the number of a class.
func (t *transaction) class(c *cluster, of visibility.Class) uint32 {
	hash := hashClass(c.id, &of)
	if id, known := t.classTable.find(hash, func(id uint32) bool { return t.classes.at(id).class == of }); known {
		return id
	}
	id := t.number(graveClass, t.classes.len())
	*t.classes.edit(t.id, id) = class{class: interned(c.name, of), cluster: c.id}
	t.classTable.insert(t.id, hash, id)
	// What older states see of the memory does not change.
	if secret(of) {
		c.secretClasses = append(c.secretClasses, id)
	} else {
		c.classes = append(c.classes, id)
	}
	if of.Hub {
		t.hubClasses++
	}
	return id
}

func hashClass(clusterID uint32, c *visibility.Class) uint64 {
	hash := hashOf(c.Namespace, clusterID)
	hash ^= bits.RotateLeft64(maphash.String(hashSeed, c.Resource), 1) ^ bits.RotateLeft64(maphash.String(hashSeed, c.Group), 2)
	if c.Hub {
		hash = ^hash
	}
	return hash
}

// interned is a class that shares its texts with all that have the same, and keeps
// no memory of reports alive.
func interned(cluster string, c visibility.Class) visibility.Class {
	c.Cluster = cluster
	for _, text := range [...]*string{&c.Group, &c.Resource, &c.Namespace} {
		*text = unique.Make(*text).Value()
	}
	return c
}

// leaveClass takes a row out of its class, which is given up when it is empty.
func (t *transaction) leaveClass(number, id uint32, c *cluster) {
	e := t.classes.edit(t.id, id)
	e.rows.remove(t.id, number)
	if !e.rows.empty() || e.pending {
		return
	}
	t.classTable.remove(t.id, hashClass(c.id, &e.class), id)
	is := func(other uint32) bool { return other == id }
	if secret(e.class) {
		c.secretClasses = slices.DeleteFunc(slices.Clone(c.secretClasses), is)
	} else {
		c.classes = slices.DeleteFunc(slices.Clone(c.classes), is)
	}
	if e.class.Hub {
		t.hubClasses++
	}
	t.free[graveClass] = append(t.free[graveClass], id)
}
