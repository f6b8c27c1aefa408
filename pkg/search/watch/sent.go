package watch

import (
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// sentItem is the record of an item that the client knows. It is used to send a deletion later. A
// watch of a whole fleet has one for each resource, so it is small.
type sentItem struct {
	version uint64
	// pass is the number of the last listing that contained the item.
	pass uint32
	// place is an index into places.
	place uint32
	name  string
}

// place contains values that many items share.
type place struct {
	cluster         string
	hub             bool
	kind, namespace string
}

// sentItems are the items that the client knows, by UID.
type sentItems struct {
	items  map[string]sentItem
	places []usedPlace
	known  map[place]uint32
	// free contains the indexes of places without items.
	free  []uint32
	share share
}

// usedPlace is a place with the number of its items.
type usedPlace struct {
	place
	items int
}

func newSentItems(share share) sentItems {
	return sentItems{items: map[string]sentItem{}, known: map[place]uint32{}, share: share}
}

// add records an item. It keeps the identity that was first sent. It returns an error if the memory
// is exhausted.
func (t *sentItems) add(uid, cluster string, hub bool, version uint64, pass uint32, properties query.Properties) error {
	if known, ok := t.items[uid]; ok {
		known.version, known.pass = version, pass
		t.items[uid] = known
		return nil
	}
	name := search.Text(properties, query.Name)
	at := place{
		cluster: cluster, hub: hub,
		kind: search.Text(properties, query.Kind), namespace: search.Text(properties, query.Namespace),
	}
	bytes := bytesOf(uid, name)
	if _, shared := t.known[at]; !shared {
		bytes += at.bytes()
	}
	if err := t.share.grow(bytes); err != nil {
		return err
	}
	// The texts may be parts of a whole response, which would then stay in memory.
	t.items[strings.Clone(uid)] = sentItem{
		version: version, pass: pass, name: strings.Clone(name), place: t.use(at),
	}
	return nil
}

// remove removes an item.
func (t *sentItems) remove(uid string) {
	if known, ok := t.items[uid]; ok {
		delete(t.items, uid)
		t.share.shrink(bytesOf(uid, known.name) + t.leave(known.place))
	}
}

// bytesOf returns the memory for an item.
func bytesOf(uid, name string) int64 { return int64(itemBytes + len(uid) + len(name)) }

// bytes returns the memory for a place.
func (p *place) bytes() int64 {
	return int64(placeBytes + len(p.cluster) + len(p.kind) + len(p.namespace))
}

// use returns the index of the place of a new item.
func (t *sentItems) use(p place) uint32 {
	index, known := t.known[p]
	if !known {
		p.cluster, p.kind, p.namespace = strings.Clone(p.cluster), strings.Clone(p.kind), strings.Clone(p.namespace)
		if last := len(t.free) - 1; last >= 0 {
			index, t.free = t.free[last], t.free[:last]
		} else {
			index, t.places = uint32(len(t.places)), append(t.places, usedPlace{})
		}
		t.places[index].place = p
		t.known[p] = index
	}
	t.places[index].items++
	return index
}

// leave removes an item from its place. It returns the memory of the place if it was the last item, and otherwise 0.
func (t *sentItems) leave(index uint32) int64 {
	p := &t.places[index]
	if p.items--; p.items > 0 {
		return 0
	}
	bytes := p.bytes()
	delete(t.known, p.place)
	*p = usedPlace{}
	t.free = append(t.free, index)
	return bytes
}

// identity contains the properties that identify a resource on its cluster.
var identity = [...]string{query.Kind, query.Name, query.Namespace}

// identifying returns the properties that identify an item. Decoding all properties would take most
// of the time of a long listing.
func identifying(encoded []byte) query.Properties {
	out := make(query.Properties, 0, len(identity))
	search.WalkObject(encoded, func(key, value []byte) {
		for _, name := range identity {
			if string(key[1:len(key)-1]) == name && value[0] != '{' && value[0] != '[' {
				out = append(out, textProperty(name, search.LeafText(value)))
			}
		}
	})
	return out
}

// item returns an item with only the properties that identify it.
func (t *sentItems) item(uid string, version uint64) search.Item {
	known := t.items[uid]
	p := t.places[known.place].place
	return identityItem(uid, &p, known.name, version)
}

// identityOf returns an item with only the properties that identify it.
func identityOf(uid, cluster string, hub bool, version uint64, properties query.Properties) search.Item {
	p := place{
		cluster: cluster, hub: hub,
		kind: search.Text(properties, query.Kind), namespace: search.Text(properties, query.Namespace),
	}
	return identityItem(uid, &p, search.Text(properties, query.Name), version)
}

func identityItem(uid string, p *place, name string, version uint64) search.Item {
	var properties query.Properties
	for _, known := range []struct{ property, text string }{
		{query.Kind, p.kind}, {query.Name, name}, {query.Namespace, p.namespace},
	} {
		if known.text != "" {
			properties = append(properties, textProperty(known.property, known.text))
		}
	}
	return search.Item{UID: uid, Cluster: p.cluster, Hub: p.hub, Version: version, Object: properties}
}

func textProperty(name, text string) query.Property {
	return query.Property{Name: name, Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: text}}}
}
