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
	pass  uint32
	place *usedPlace
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
	items map[string]sentItem
	known map[place]*usedPlace
	share share
}

// usedPlace is a place with the number of its items.
type usedPlace struct {
	place
	items int
}

func newSentItems(share share) sentItems {
	return sentItems{items: map[string]sentItem{}, known: map[place]*usedPlace{}, share: share}
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
	used := t.known[at]
	if used == nil {
		bytes += at.bytes()
	}
	if err := t.share.grow(bytes); err != nil {
		return err
	}
	// The texts may be parts of a whole response, which would then stay in memory.
	if used == nil {
		at.cluster, at.kind, at.namespace = strings.Clone(at.cluster), strings.Clone(at.kind), strings.Clone(at.namespace)
		used = &usedPlace{place: at}
		t.known[at] = used
	}
	used.items++
	t.items[strings.Clone(uid)] = sentItem{version: version, pass: pass, name: strings.Clone(name), place: used}
	return nil
}

// remove removes an item.
func (t *sentItems) remove(uid string) {
	known, ok := t.items[uid]
	if !ok {
		return
	}
	delete(t.items, uid)
	bytes := bytesOf(uid, known.name)
	if known.place.items--; known.place.items == 0 {
		delete(t.known, known.place.place)
		bytes += known.place.bytes()
	}
	t.share.shrink(bytes)
}

// bytesOf returns the memory for an item.
func bytesOf(uid, name string) int64 { return int64(itemBytes + len(uid) + len(name)) }

// bytes returns the memory for a place.
func (p *place) bytes() int64 {
	return int64(placeBytes + len(p.cluster) + len(p.kind) + len(p.namespace))
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
	p := known.place
	var properties query.Properties
	for _, one := range []struct{ property, text string }{
		{query.Kind, p.kind}, {query.Name, known.name}, {query.Namespace, p.namespace},
	} {
		if one.text != "" {
			properties = append(properties, textProperty(one.property, one.text))
		}
	}
	return search.Item{UID: uid, Cluster: p.cluster, Hub: p.hub, Version: version, Object: properties}
}

func textProperty(name, text string) query.Property {
	return query.Property{Name: name, Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: text}}}
}
