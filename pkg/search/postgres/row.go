package postgres

import (
	"cmp"
	"slices"
	"strings"

	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// longName is the maximum length of an indexed name. Names in Kubernetes are shorter.
const longName = 1024

// shapeProperties are the properties of a class, sorted. Some of them decide which callers can find
// a resource. The others have the same value in many resources, so that classes can answer filters
// on them.
var shapeProperties = []string{
	query.HubResource, query.APIGroup, query.APIVersion, query.Kind, query.KindPlural, query.Namespace,
}

func inShape(property string) bool { return slices.Contains(shapeProperties, property) }

// shapeOf returns the properties of a class.
func shapeOf(properties query.Properties) query.Properties {
	shape := make(query.Properties, 0, len(shapeProperties))
	for i := range properties {
		if inShape(properties[i].Name) {
			shape = append(shape, properties[i])
		}
	}
	return shape
}

// resource is a reported or stored resource.
type resource struct {
	uid        string
	rid        int64
	properties query.Properties
	doc        string
	// internal is the JSON of the internal properties, or empty.
	internal string
	digest   int64
}

// newResource encodes a resource. It stores the properties in the form that decoding the JSON
// returns.
func (h hasher) newResource(cluster string, r *search.Resource) (*resource, error) {
	properties, doc, err := encoded(r.Properties)
	if err != nil {
		return nil, err
	}
	stored := &resource{uid: r.UID, rid: h.resource(cluster, r.UID), properties: properties, doc: doc}
	if len(r.Internal) == 0 {
		stored.digest = h.sum(hashDocument, doc)
		return stored, nil
	}
	if _, stored.internal, err = encoded(r.Internal); err != nil {
		return nil, err
	}
	stored.digest = h.sum(hashDocument, doc+stored.internal)
	return stored, nil
}

// encoded returns properties in the form that decoding their JSON returns, and their JSON.
func encoded(properties query.Properties) (query.Properties, string, error) {
	decoded, err := query.DecodeProperties(properties.AppendJSON(nil))
	if err != nil {
		return nil, "", err
	}
	return decoded, string(decoded.AppendJSON(nil)), nil
}

// columns contains the indexed columns of a resource.
type columns struct {
	created      *int64
	createdOther bool
	name         *string
	// nameKey is not nil if name is not the whole property name, or not a plain name.
	nameKey *string
	// leaves contains the terms of leaves in order.
	leaves []int64
	terms  []int64
	words  string
}

func (h hasher) columns(r *resource) columns {
	var c columns
	c.nameColumns(r.properties)
	if p := r.properties.Get(query.Created); p != nil {
		if micros, exact := exactTime(p); exact {
			c.created = &micros
		} else {
			c.createdOther = len(p.Leaves) > 0
		}
	}
	c.words = words(r.properties)
	c.leaves = h.leafTerms(r.properties)
	c.terms = h.terms(r.properties, c.leaves)
	return c
}

func (c *columns) nameColumns(properties query.Properties) {
	p := properties.Get(query.Name)
	if p == nil || len(p.Leaves) == 0 {
		return
	}
	if p.Type < query.Map {
		if name := escape(p.Leaves[0].Text); len(name) <= longName {
			c.name = &name
		}
	}
	if p.Type != query.String || !plainText(p.Leaves[0].Text) || c.name == nil {
		c.nameKey = new(string)
	}
}

// exactTime returns the time of a property, if the property is a time that microseconds can
// represent.
func exactTime(p *query.Property) (int64, bool) {
	if p.Type != query.String || len(p.Leaves) != 1 {
		return 0, false
	}
	at, is := query.ParseTime(p.Leaves[0].Text)
	if !is {
		return 0, false
	}
	return microseconds(at)
}

// inTerms reports whether the leaves of a property have terms. Filters on properties of classes do
// not require terms. The terms of kinds only help to find classes.
func inTerms(p *query.Property) bool {
	return p.Name != query.Cluster && (p.Name == query.Kind || !inShape(p.Name))
}

// leafTerms returns the hashes of all leaves that have terms, in order.
func (h hasher) leafTerms(properties query.Properties) []int64 {
	count := 0
	for i := range properties {
		count += len(properties[i].Leaves)
	}
	hashes := make([]int64, 0, count)
	for i := range properties {
		p := &properties[i]
		if !inTerms(p) {
			continue
		}
		for j := range p.Leaves {
			leaf := &p.Leaves[j]
			hashes = append(hashes, h.leaf(p.Name, p.Type == query.Map, leaf.Key, leaf.Text))
		}
	}
	return hashes
}

// terms returns the hashes of all leaves, of the keys of maps, and of numbers. leaves are the
// hashes of the leaves.
func (h hasher) terms(properties query.Properties, leaves []int64) []int64 {
	terms := append(make([]int64, 0, 4*len(leaves)), leaves...)
	for i := range properties {
		p := &properties[i]
		if !inTerms(p) {
			continue
		}
		for j := range p.Leaves {
			leaf := &p.Leaves[j]
			text := leaf.Text
			if p.Type == query.Map {
				text = leaf.Key
				terms = append(terms, h.pairKey(p.Name, leaf.Key))
			}
			if number, is := query.ParseNumber(text); is {
				terms = append(terms, h.number(p.Name, number))
			}
		}
	}
	return terms
}

// words returns the texts in which keywords are searched. It omits texts that are contained in
// other texts.
func words(properties query.Properties) string {
	var texts []string
	for i := range properties {
		p := &properties[i]
		if query.Hidden(p.Name) || p.Name == query.Cluster {
			continue
		}
		for j := range p.Leaves {
			texts = append(texts, query.Fold(escape(query.LeafText(p.Type, p.Leaves[j]))))
		}
	}
	slices.SortFunc(texts, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	var b strings.Builder
	for _, text := range texts {
		if b.Len() > 0 {
			if strings.Contains(b.String(), text) {
				continue
			}
			b.WriteString(separator)
		}
		b.WriteString(text)
	}
	return b.String()
}
