package embedded

import (
	"cmp"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// normalized returns properties in the form that package search requires: unique and sorted by
// name, scalars with one leaf, and keys of maps unique and sorted. It returns its argument if it
// already has this form.
func normalized(properties query.Properties) query.Properties {
	if isNormal(properties) {
		return properties
	}
	normal := make(query.Properties, 0, len(properties))
	for _, p := range properties {
		switch {
		case p.Type > query.List || p.Type < query.Map && len(p.Leaves) == 0:
			continue
		case p.Type < query.Map:
			p.Leaves = []query.Leaf{{Type: p.Type, Text: p.Leaves[0].Text}}
		case p.Type == query.Map:
			leaves := slices.Clone(p.Leaves)
			slices.SortStableFunc(leaves, func(a, b query.Leaf) int { return strings.Compare(a.Key, b.Key) })
			p.Leaves = slices.CompactFunc(leaves, func(a, b query.Leaf) bool { return a.Key == b.Key })
		default:
			leaves := slices.Clone(p.Leaves)
			for i := range leaves {
				leaves[i].Key = ""
			}
			p.Leaves = leaves
		}
		for i := range p.Leaves {
			p.Leaves[i].Type = min(p.Leaves[i].Type, query.JSON)
		}
		normal = append(normal, p)
	}
	slices.SortStableFunc(normal, func(a, b query.Property) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(normal, func(a, b query.Property) bool { return a.Name == b.Name })
}

func isNormal(properties query.Properties) bool {
	for i := range properties {
		p := &properties[i]
		if i > 0 && properties[i-1].Name >= p.Name || p.Type > query.List {
			return false
		}
		if p.Type < query.Map && (len(p.Leaves) != 1 || p.Leaves[0].Type != p.Type) {
			return false
		}
		for j := range p.Leaves {
			leaf := &p.Leaves[j]
			if leaf.Type > query.JSON {
				return false
			}
			if p.Type == query.Map {
				if j > 0 && p.Leaves[j-1].Key >= leaf.Key {
					return false
				}
			} else if leaf.Key != "" {
				return false
			}
		}
	}
	return true
}
