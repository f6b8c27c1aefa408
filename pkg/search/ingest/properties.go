package ingest

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"open-cluster-management.io/hub-apiserver/pkg/search/query"
)

const (
	// nameBytes bounds the name of a property.
	nameBytes = 128
	// kindBytes bounds a kind, placeBytes a name or namespace, and identityBytes the other properties that identify a
	// resource. They are part of classes, keys and indexes. Kubernetes allows 63 bytes for a kind and 253 for most names.
	kindBytes     = 253
	identityBytes = 1 << 10
	placeBytes    = 16 << 10
)

// identifies reports whether a property identifies a resource, or decides which callers can find
// it. Such a property must be a string.
func identifies(name string) bool {
	switch name {
	case query.Kind, query.KindPlural, query.APIGroup, query.APIVersion, query.Namespace, query.Name:
		return true
	}
	return false
}

// complete turns reported properties into stored ones. If they are rejected, it returns the reason
// as text.
func complete(properties query.Properties, kind, plural string, hub bool, limit int) (query.Properties, string) {
	if len(properties) > limit {
		return nil, fmt.Sprintf("more than %d properties", limit)
	}
	kept := properties[:0]
	for _, p := range properties {
		if !validName(p.Name) {
			return nil, fmt.Sprintf("property name %.*q must begin with a letter or underscore, and consist of letters, digits, _, ., - and /", nameBytes, p.Name)
		}
		if identifies(p.Name) && p.Type != query.String {
			return nil, fmt.Sprintf("property %s must be a string", p.Name)
		}
		if !query.Reserved(p.Name) {
			kept = append(kept, p)
		}
	}
	kept = fill(kept, query.Kind, kind)
	kept = fill(kept, query.KindPlural, plural)
	for _, name := range []string{query.Kind, query.Name} {
		if at, found := find(kept, name); !found || kept[at].Leaves[0].Text == "" {
			return nil, name + " is missing"
		}
	}
	for i := range kept {
		longest := identityBytes
		switch kept[i].Name {
		case query.Kind:
			longest = kindBytes
		case query.Name, query.Namespace:
			longest = placeBytes
		}
		if identifies(kept[i].Name) && len(kept[i].Leaves[0].Text) > longest {
			return nil, fmt.Sprintf("property %s is longer than %d bytes", kept[i].Name, longest)
		}
	}
	if hub {
		kept = put(kept, query.Property{Name: query.HubResource, Type: query.Bool, Leaves: []query.Leaf{{Type: query.Bool, Text: "true"}}})
	}
	return kept, ""
}

// fill sets a property that is missing or empty, unless the given text is empty.
func fill(properties query.Properties, name, text string) query.Properties {
	if at, found := find(properties, name); text == "" || found && properties[at].Leaves[0].Text != "" {
		return properties
	}
	return put(properties, query.Property{Name: name, Type: query.String, Leaves: []query.Leaf{{Type: query.String, Text: text}}})
}

func put(properties query.Properties, property query.Property) query.Properties {
	at, found := find(properties, property.Name)
	if found {
		properties[at] = property
		return properties
	}
	return slices.Insert(properties, at, property)
}

func find(properties query.Properties, name string) (int, bool) {
	return slices.BinarySearchFunc(properties, name, func(p query.Property, name string) int {
		return strings.Compare(p.Name, name)
	})
}

func validName(name string) bool { return len(name) <= nameBytes && query.CheckProperty(name) == "" }

// weight measures a property.
type weight struct {
	// values counts single values, including those nested in lists and maps.
	values int
	// memory is the approximate memory of the values, in addition to the text from which they were
	// decoded.
	memory int
	// representable is true if all numbers fit into 64-bit floating point. Otherwise, common JSON
	// decoders fail, and one number would make a list of the whole fleet unreadable.
	representable bool
}

func weigh(p *query.Property) weight {
	w := weight{memory: len(p.Leaves) * leafCost, representable: true}
	for i := range p.Leaves {
		switch leaf := &p.Leaves[i]; leaf.Type {
		case query.JSON:
			w.memory += len(leaf.Text)
			w.weighJSON(leaf.Text)
		case query.Number:
			w.values++
			w.representable = w.representable && finite(leaf.Text)
		default:
			w.values++
		}
	}
	// An empty list counts as one value.
	w.values = max(w.values, 1)
	return w
}

// weighJSON counts the lists, maps, names and values in a JSON text.
func (w *weight) weighJSON(text string) {
	decoder := jsontext.NewDecoder(strings.NewReader(text), jsontext.AllowDuplicateNames(true))
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			w.representable = w.representable && err == io.EOF
			return
		}
		switch token.Kind() {
		case '}', ']':
			continue
		case '0':
			w.representable = w.representable && finite(token.String())
		}
		w.values++
	}
}

func finite(number string) bool {
	const short = 300
	if len(number) < short && !strings.ContainsAny(number, "eE") {
		return true
	}
	_, err := strconv.ParseFloat(number, 64)
	return err == nil
}
