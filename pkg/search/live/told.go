package live

import (
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// telling is what the caller knows of an item: enough to tell later that it is gone. A watch
// of a whole fleet has one for every resource, so it is small.
type telling struct {
	version uint64
	// pass is the last listing that the item was in.
	pass uint32
	// place is an index into the places.
	place uint32
	name  string
}

// place is what many items have in common.
type place struct {
	cluster         string
	hub             bool
	kind, namespace string
}

// tellings are the items that the caller knows, by UID.
type tellings struct {
	items  map[string]telling
	places []place
	known  map[place]uint32
	share  share
}

func newTellings(share share) tellings {
	return tellings{items: map[string]telling{}, known: map[place]uint32{}, share: share}
}

// add notes an item. Who the item is stays what it was first told to be. It returns an error if there is no
// memory for one more.
func (t *tellings) add(uid, cluster string, hub bool, version uint64, pass uint32, properties query.Properties) error {
	if known, ok := t.items[uid]; ok {
		known.version, known.pass = version, pass
		t.items[uid] = known
		return nil
	}
	name := search.Text(properties, query.Name)
	if err := t.share.grow(bytesOf(uid, name)); err != nil {
		return err
	}
	// The texts may be parts of a whole response, which must not be kept.
	t.items[strings.Clone(uid)] = telling{
		version: version, pass: pass, name: strings.Clone(name),
		place: t.place(place{
			cluster: cluster, hub: hub,
			kind: search.Text(properties, query.Kind), namespace: search.Text(properties, query.Namespace),
		}),
	}
	return nil
}

// remove forgets an item.
func (t *tellings) remove(uid string) {
	if known, ok := t.items[uid]; ok {
		delete(t.items, uid)
		t.share.shrink(bytesOf(uid, known.name))
	}
}

// bytesOf is what an item takes.
func bytesOf(uid, name string) int64 { return int64(tellingBytes + len(uid) + len(name)) }

func (t *tellings) place(p place) uint32 {
	if known, ok := t.known[p]; ok {
		return known
	}
	p.cluster, p.kind, p.namespace = strings.Clone(p.cluster), strings.Clone(p.kind), strings.Clone(p.namespace)
	index := uint32(len(t.places))
	t.places = append(t.places, p)
	t.known[p] = index
	return index
}

// item is who an item is, and nothing else.
func (t *tellings) item(uid string, version uint64) search.Item {
	known := t.items[uid]
	p := t.places[known.place]
	return identity(uid, &p, known.name, version)
}

// anonymous is who an item with properties is, and nothing else.
func anonymous(uid, cluster string, hub bool, version uint64, properties query.Properties) search.Item {
	p := place{
		cluster: cluster, hub: hub,
		kind: search.Text(properties, query.Kind), namespace: search.Text(properties, query.Namespace),
	}
	return identity(uid, &p, search.Text(properties, query.Name), version)
}

func identity(uid string, p *place, name string, version uint64) search.Item {
	var properties query.Properties
	for _, known := range []struct{ property, text string }{
		{query.Kind, p.kind}, {query.Name, name}, {query.Namespace, p.namespace},
	} {
		if known.text != "" {
			properties = append(properties, query.Property{
				Name: known.property, Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: known.text}},
			})
		}
	}
	return search.Item{UID: uid, Cluster: p.cluster, Hub: p.hub, Version: version, Object: properties}
}
