package fleetgen

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

// leafBlock is the number of leaves that are allocated at a time.
const leafBlock = 4096

// leaves allocates leaves in large blocks, because a fleet has millions of them.
type leaves struct{ free []query.Leaf }

func (l *leaves) take(n int) []query.Leaf {
	if n > len(l.free) {
		l.free = make([]query.Leaf, max(n, leafBlock))
	}
	taken := l.free[:n:n]
	l.free = l.free[n:]
	return taken
}

// row collects the properties of one resource.
type row struct {
	leaves     *leaves
	properties query.Properties
}

// set adds properties: alternating names, and values of type string, int, bool or []string.
func (r *row) set(namesAndValues ...any) {
	for i := 0; i < len(namesAndValues); i += 2 {
		name := namesAndValues[i].(string)
		switch value := namesAndValues[i+1].(type) {
		case string:
			r.add(name, query.String, query.String, value)
		case int:
			r.add(name, query.Number, query.Number, strconv.Itoa(value))
		case bool:
			r.add(name, query.Bool, query.Bool, strconv.FormatBool(value))
		case []string:
			r.add(name, query.List, query.String, value...)
		}
	}
}

func (r *row) add(name string, t, ofLeaves query.Type, texts ...string) {
	leaves := r.leaves.take(len(texts))
	for i := range texts {
		leaves[i] = query.Leaf{Type: ofLeaves, Text: texts[i]}
	}
	r.properties = append(r.properties, query.Property{Name: name, Type: t, Leaves: leaves})
}

// pairs adds a map of alternating keys and values.
func (r *row) pairs(name string, v ...string) {
	m := r.leaves.take(len(v) / 2)
	for i := range m {
		m[i] = query.Leaf{Key: v[2*i], Type: query.String, Text: v[2*i+1]}
	}
	slices.SortFunc(m, func(a, b query.Leaf) int { return cmp.Compare(a.Key, b.Key) })
	r.properties = append(r.properties, query.Property{Name: name, Type: query.Map, Leaves: m})
}

// sorted returns the properties in the order of their names.
func (r *row) sorted() query.Properties {
	slices.SortFunc(r.properties, func(a, b query.Property) int { return cmp.Compare(a.Name, b.Name) })
	return r.properties
}

func numbered(prefix string, digits, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%0*d", prefix, digits, i)
	}
	return names
}
