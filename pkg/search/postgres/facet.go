package postgres

import (
	"cmp"
	"context"
	"slices"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// facetKey identifies a leaf of a cluster by its term.
type facetKey struct {
	secret bool
	leaf   int64
}

// facets collects the changes of a report to the values of a cluster.
type facets struct {
	hash   hasher
	leaves map[facetKey]*facetRow
	// properties contains the changes of rows without a hash and a number.
	properties map[propertyRow]int64
}

func newFacets(hash hasher) *facets {
	return &facets{hash: hash, leaves: map[facetKey]*facetRow{}, properties: map[propertyRow]int64{}}
}

// inFacets reports whether the leaves of a property are stored as values. Hidden properties,
// properties of classes, names and creation times are stored elsewhere.
func inFacets(p *query.Property) bool {
	switch {
	case query.Hidden(p.Name), p.Name == query.Cluster, inShape(p.Name):
		return false
	case p.Name == query.Name:
		return p.Type >= query.Map || len(p.Leaves) > 0 && len(escape(p.Leaves[0].Text)) > longName
	case p.Name == query.Created:
		_, exact := exactTime(p)
		return !exact
	}
	return true
}

// add counts the leaves of a resource. terms are the terms of the leaves. If by is -1, it subtracts
// them.
func (f *facets) add(secret bool, properties query.Properties, terms []int64, by int64) {
	for i := range properties {
		p := &properties[i]
		var own []int64
		if inTerms(p) {
			own, terms = terms[:len(p.Leaves)], terms[len(p.Leaves):]
		}
		if query.Hidden(p.Name) {
			continue
		}
		isTime := p.Type == query.String && query.IsTime(p.Leaves[0].Text)
		f.properties[propertyRow{Secret: secret, Name: p.Name, Type: int16(p.Type), IsTime: isTime}] += by
		if inFacets(p) {
			f.addLeaves(secret, p, own, by)
		}
	}
}

func (f *facets) addLeaves(secret bool, p *query.Property, terms []int64, by int64) {
	for j := range p.Leaves {
		// A resource counts once for a value, even if the value occurs several times in a list.
		if p.Type == query.List && slices.Contains(terms[:j], terms[j]) {
			continue
		}
		key := facetKey{secret: secret, leaf: terms[j]}
		one := f.leaves[key]
		if one == nil {
			one = &facetRow{
				Secret: secret, Property: f.hash.property(p.Name), Leaf: key.leaf,
				Pair: p.Type == query.Map, Key: escape(p.Leaves[j].Key), Value: escape(p.Leaves[j].Text),
			}
			f.leaves[key] = one
		}
		one.N += by
	}
}

// facetRow is a row of the table facets, and propertyRow one of the table properties.
type (
	facetRow struct {
		Secret   bool   `json:"secret"`
		Property int64  `json:"property"`
		Leaf     int64  `json:"leaf"`
		Pair     bool   `json:"pair"`
		Key      string `json:"key"`
		Value    string `json:"value"`
		N        int64  `json:"n"`
	}
	propertyRow struct {
		Secret   bool   `json:"secret"`
		Name     string `json:"name"`
		Property int64  `json:"property"`
		Type     int16  `json:"type"`
		IsTime   bool   `json:"is_time"`
		N        int64  `json:"n"`
	}
)

var (
	facetTable = countTable{name: "facets", key: []string{"property", "secret", "leaf"},
		types: "secret boolean, property bigint, leaf bigint, pair boolean, key text, value text, n bigint"}
	propertyTable = countTable{name: "properties", key: []string{"secret", "property", "type", "is_time"},
		types: "secret boolean, name text, property bigint, type smallint, is_time boolean, n bigint"}
)

// store updates the tables. The caller must hold the lock of the cluster.
func (f *facets) store(ctx context.Context, p *pipeline, cluster int32) error {
	var rows []facetRow
	for _, one := range f.leaves {
		rows = append(rows, *one)
	}
	// Inserts are faster in the order of the key.
	slices.SortFunc(rows, func(x, y facetRow) int {
		return cmp.Or(cmp.Compare(x.Property, y.Property), cmp.Compare(x.Leaf, y.Leaf))
	})
	if err := addCounts(ctx, p, &facetTable, cluster, rows, func(r *facetRow) int64 { return r.N }); err != nil {
		return err
	}
	var properties []propertyRow
	for one, count := range f.properties {
		one.Property, one.Name, one.N = f.hash.property(one.Name), escape(one.Name), count
		properties = append(properties, one)
	}
	return addCounts(ctx, p, &propertyTable, cluster, properties, func(r *propertyRow) int64 { return r.N })
}
