package embedded

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// internalMark precedes the name of an internal property in the dictionary. No query can contain it. It is less than
// any other byte of a name, so the internal properties of a row come first.
const internalMark = "\x00"

func internalName(name string) string { return internalMark + name }

func isInternal(name string) bool { return name != "" && name[0] == internalMark[0] }

// withInternal returns the properties of a row with its internal properties.
func withInternal(properties, internal query.Properties) query.Properties {
	if len(internal) == 0 {
		return properties
	}
	all := make(query.Properties, 0, len(internal)+len(properties))
	for _, p := range internal {
		p.Name = internalName(p.Name)
		all = append(all, p)
	}
	return append(all, properties...)
}

// splitInternal is the reverse of withInternal.
func splitInternal(all query.Properties) (internal, properties query.Properties) {
	end := 0
	for end < len(all) && isInternal(all[end].Name) {
		all[end].Name = all[end].Name[len(internalMark):]
		end++
	}
	return all[:end:end], all[end:]
}

// internalEnd returns the end of the UID and of the internal properties in the data of a row.
func (s *state) internalEnd(data string) int {
	at := uidEnd(data)
	for at < len(data) {
		number, next := uvarint(data, at)
		f := *s.fields.at(s.terms.at(number).info().field())
		if !(*s.properties.at(f.property)).internal {
			break
		}
		at = next
	}
	return at
}

// Internal implements search.Engine.
func (e *Engine) Internal(ctx context.Context, cluster string, visit func(*search.Resource) error) (uint64, error) {
	s := e.current.Load()
	id, known := s.clusterNames[cluster]
	if !known {
		return s.version, ctx.Err()
	}
	c := s.clusters[id]
	found := roaring.New()
	for _, property := range s.propertyNames {
		if p := s.properties.get(property); p.internal {
			for i := range p.variants {
				found.Or(roaring.And(p.variants[i].asBitmap(), c.rows.asBitmap()))
			}
		}
	}
	var memory decodedMemory
	visited := 0
	for rows := found.Iterator(); rows.HasNext(); {
		if visited++; visited%checkEvery == 0 && ctx.Err() != nil {
			break
		}
		data := s.rows.at(rows.Next()).data
		resource := search.Resource{UID: string(appendUIDText(nil, c.name, data))}
		resource.Internal, resource.Properties = splitInternal(s.decodeInto(&memory, data))
		if err := visit(&resource); err != nil {
			return 0, err
		}
	}
	return s.version, ctx.Err()
}
