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

// facet is a leaf with its number of resources, or the change of that number.
type facet struct {
	property int64
	pair     bool
	leaf     query.Leaf
	number   int64
}

// propertyKey identifies a property with a type.
type propertyKey struct {
	secret bool
	name   string
	kind   query.Type
	time   bool
}

// facets collects the changes of a report to the values of a cluster.
type facets struct {
	hash       hasher
	leaves     map[facetKey]*facet
	properties map[propertyKey]int64
	// names contains the hashes of properties.
	names map[string]int64
}

func newFacets(hash hasher) *facets {
	return &facets{hash: hash, leaves: map[facetKey]*facet{}, properties: map[propertyKey]int64{}, names: map[string]int64{}}
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
		f.properties[propertyKey{secret: secret, name: p.Name, kind: p.Type, time: isTime}] += by
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
			one = &facet{property: f.property(p.Name), pair: p.Type == query.Map, leaf: p.Leaves[j]}
			f.leaves[key] = one
		}
		one.number += by
	}
}

func (f *facets) property(name string) int64 {
	known, is := f.names[name]
	if !is {
		known = f.hash.property(name)
		f.names[name] = known
	}
	return known
}

// keys returns the keys in the order of the table, because inserts in this order are faster.
func (f *facets) keys() []facetKey {
	keys := make([]facetKey, 0, len(f.leaves))
	for key, one := range f.leaves {
		if one.number != 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(x, y facetKey) int {
		return cmp.Or(cmp.Compare(f.leaves[x].property, f.leaves[y].property), cmp.Compare(x.leaf, y.leaf))
	})
	return keys
}

// store updates the tables. If the cluster is fresh, the tables contain no rows of it yet. The
// caller must hold the lock of the cluster.
func (f *facets) store(ctx context.Context, p *pipeline, e *Engine, cluster int32, fresh bool) error {
	var rows, gone facetRows
	for _, key := range f.keys() {
		one := f.leaves[key]
		rows.add(key, one)
		if one.number < 0 {
			gone.add(key, one)
		}
	}
	switch {
	case len(rows.leaf) == 0:
	case fresh:
		columns := []string{"cluster", "secret", "property", "leaf", "pair", "key", "value", "n"}
		err := p.insert(ctx, "storing values", "facets", columns, len(rows.leaf), func(i int) []any {
			return []any{cluster, rows.secret[i], rows.property[i], rows.leaf[i], rows.pair[i], rows.key[i], rows.value[i], rows.number[i]}
		})
		if err != nil {
			return err
		}
	default:
		p.add("storing values", "INSERT INTO "+e.table("facets")+` AS f (cluster, secret, property, leaf, pair, key, value, n)
			SELECT $1, * FROM unnest($2::boolean[], $3::bigint[], $4::bigint[], $5::boolean[], $6::text[], $7::text[], $8::bigint[])
			ON CONFLICT (property, cluster, secret, leaf) DO UPDATE SET n = f.n + excluded.n`,
			cluster, rows.secret, rows.property, rows.leaf, rows.pair, rows.key, rows.value, rows.number)
	}
	if len(gone.leaf) > 0 {
		// The condition contains the whole key. Otherwise PostgreSQL reads all values of the property for each.
		p.add("removing values", "DELETE FROM "+e.table("facets")+` f USING unnest($2::boolean[], $3::bigint[], $4::bigint[]) g(secret, property, leaf)
			WHERE f.cluster = $1 AND f.secret = g.secret AND f.property = g.property AND f.leaf = g.leaf AND f.n <= 0`,
			cluster, gone.secret, gone.property, gone.leaf)
	}
	f.storeProperties(p, e, cluster)
	return nil
}

func (f *facets) storeProperties(p *pipeline, e *Engine, cluster int32) {
	var secret, isTime []bool
	var names []string
	var properties, counts []int64
	var kinds []int16
	fewer := false
	for key, count := range f.properties {
		if count == 0 {
			continue
		}
		fewer = fewer || count < 0
		secret, isTime = append(secret, key.secret), append(isTime, key.time)
		names, properties = append(names, escape(key.name)), append(properties, f.property(key.name))
		kinds, counts = append(kinds, int16(key.kind)), append(counts, count)
	}
	if len(names) > 0 {
		p.add("storing properties", "INSERT INTO "+e.table("properties")+` AS p (cluster, secret, name, property, type, is_time, n)
			SELECT $1, * FROM unnest($2::boolean[], $3::text[], $4::bigint[], $5::smallint[], $6::boolean[], $7::bigint[])
			ON CONFLICT (cluster, secret, property, type, is_time) DO UPDATE SET n = p.n + excluded.n`,
			cluster, secret, names, properties, kinds, isTime, counts)
	}
	if fewer {
		p.add("removing properties", "DELETE FROM "+e.table("properties")+" WHERE cluster = $1 AND n <= 0", cluster)
	}
}

// facetRows contains the columns of facets.
type facetRows struct {
	secret, pair   []bool
	property, leaf []int64
	key, value     []string
	number         []int64
}

func (r *facetRows) add(key facetKey, f *facet) {
	r.secret, r.pair = append(r.secret, key.secret), append(r.pair, f.pair)
	r.property, r.leaf = append(r.property, f.property), append(r.leaf, key.leaf)
	r.key, r.value = append(r.key, escape(f.leaf.Key)), append(r.value, escape(f.leaf.Text))
	r.number = append(r.number, f.number)
}
