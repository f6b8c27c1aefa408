package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// choice is a set of options, as bits.
type choice uint

func (c choice) has(option int) bool { return c&(1<<option) != 0 }

// node is what a place of the manifests contains, by choice. It has no value for choices without the place.
type node map[choice]any

func first(n node) any { return n[slices.Min(slices.Collect(maps.Keys(n)))] }

// equal reports whether all values are equal.
func (n node) equal() bool {
	want := first(n)
	for _, value := range n {
		if !reflect.DeepEqual(value, want) {
			return false
		}
	}
	return true
}

// all reports whether all values have the type T, and contain something.
func all[T map[string]any | []any](n node) bool {
	for _, value := range n {
		if typed, ok := value.(T); !ok || len(typed) == 0 {
			return false
		}
	}
	return true
}

// children returns the nodes of the keys of maps.
func (n node) children() map[string]node {
	out := map[string]node{}
	for chosen, value := range n {
		for key, child := range value.(map[string]any) {
			if out[key] == nil {
				out[key] = node{}
			}
			out[key][chosen] = child
		}
	}
	return out
}

// identity is what identifies an item of a list.
func identity(item any) string {
	if object, ok := item.(map[string]any); ok {
		if metadata, ok := object["metadata"].(map[string]any); ok {
			return fmt.Sprint(object["apiVersion"], object["kind"], metadata["namespace"], metadata["name"])
		}
		for _, key := range []string{"name", "mountPath"} {
			if name, ok := object[key].(string); ok {
				return name
			}
		}
	}
	content, err := json.Marshal(item)
	if err != nil {
		panic(err) // the item was decoded from YAML
	}
	return string(content)
}

// itemsOf returns the nodes of the items of lists, in an order that all lists have.
func itemsOf(n node) ([]node, error) {
	var order []string
	items := map[string]node{}
	// The longest lists first, because they contain the order of most items.
	chosen := slices.SortedFunc(maps.Keys(n), func(a, b choice) int {
		return cmp.Or(cmp.Compare(len(n[b].([]any)), len(n[a].([]any))), cmp.Compare(a, b))
	})
	for _, c := range chosen {
		at := 0
		for _, item := range n[c].([]any) {
			id := identity(item)
			if items[id] == nil {
				items[id] = node{}
				order = slices.Insert(order, at, id)
			}
			at = slices.Index(order, id) + 1
			items[id][c] = item
		}
	}
	out := make([]node, 0, len(order))
	for _, id := range order {
		out = append(out, items[id])
	}
	for _, c := range chosen {
		var got []any
		for _, item := range out {
			if value, ok := item[c]; ok {
				got = append(got, value)
			}
		}
		if !reflect.DeepEqual(got, n[c]) {
			return nil, fmt.Errorf("no order of items suits all options: %v", order)
		}
	}
	return out, nil
}

// compiler turns nodes into templates.
type compiler struct{ options []option }

// object returns the template of an object.
func (c *compiler) object(n node, chosen []choice) ([]string, error) {
	return c.decide(n, chosen, 0, func(n node, chosen []choice) ([]string, error) {
		lines := []string{"---"}
		children := n.children()
		for _, key := range slices.Sorted(maps.Keys(children)) {
			entry, err := c.entry(key+":", children[key], chosen, 0)
			if err != nil {
				return nil, err
			}
			lines = append(lines, entry...)
		}
		object := first(n).(map[string]any)
		if object["kind"] == "Namespace" {
			// helm install --create-namespace has created it.
			name := object["metadata"].(map[string]any)["name"]
			lines = append([]string{fmt.Sprintf("{{- if ne .Release.Namespace %q }}", name)}, append(lines, "{{- end }}")...)
		}
		return lines, nil
	})
}

// entry returns the template of an entry of a map, whose head is its key, or of a list, whose head is a dash.
func (c *compiler) entry(head string, n node, chosen []choice, depth int) ([]string, error) {
	margin := strings.Repeat("  ", depth)
	return c.decide(n, chosen, depth, func(n node, chosen []choice) ([]string, error) {
		switch {
		case n.equal():
			return plain(head, first(n), margin)
		case all[map[string]any](n):
			lines := []string{margin + head}
			children := n.children()
			for _, key := range slices.Sorted(maps.Keys(children)) {
				entry, err := c.entry(key+":", children[key], chosen, depth+1)
				if err != nil {
					return nil, err
				}
				lines = append(lines, entry...)
			}
			return lines, nil
		case all[[]any](n):
			lines := []string{margin + head}
			items, err := itemsOf(n)
			if err != nil {
				return nil, err
			}
			for _, item := range items {
				entry, err := c.entry("-", item, chosen, depth)
				if err != nil {
					return nil, err
				}
				lines = append(lines, entry...)
			}
			return lines, nil
		}
		return c.split(n, chosen, depth, func(n node, chosen []choice) ([]string, error) { return c.entry(head, n, chosen, depth) })
	})
}

// decide returns the lines of a node, within conditions if some of the chosen options omit the node.
func (c *compiler) decide(n node, chosen []choice, depth int, emit func(node, []choice) ([]string, error)) ([]string, error) {
	switch len(n) {
	case 0:
		return nil, nil
	case len(chosen):
		return emit(n, chosen)
	}
	return c.split(n, chosen, depth, func(n node, chosen []choice) ([]string, error) { return c.decide(n, chosen, depth, emit) })
}

// split returns lines within a condition on an option that changes a node.
func (c *compiler) split(n node, chosen []choice, depth int, emit func(node, []choice) ([]string, error)) ([]string, error) {
	option := 0
	for ; !matters(n, chosen, option); option++ {
		if option == len(c.options) {
			return nil, fmt.Errorf("no option explains the differences of %v", n)
		}
	}
	parts := [2]node{{}, {}}
	var choices [2][]choice
	for _, ch := range chosen {
		side := 0
		if ch.has(option) {
			side = 1
		}
		choices[side] = append(choices[side], ch)
		if value, ok := n[ch]; ok {
			parts[side][ch] = value
		}
	}
	with, err := emit(parts[1], choices[1])
	if err != nil {
		return nil, err
	}
	without, err := emit(parts[0], choices[0])
	if err != nil {
		return nil, err
	}
	margin, condition := strings.Repeat("  ", depth), c.options[option].condition
	if len(with) == 0 {
		return slices.Concat([]string{fmt.Sprintf("%s{{- if not (%s) }}", margin, condition)}, without, []string{margin + "{{- end }}"}), nil
	}
	lines := slices.Concat([]string{fmt.Sprintf("%s{{- if %s }}", margin, condition)}, with)
	if len(without) > 0 {
		lines = slices.Concat(lines, []string{margin + "{{- else }}"}, without)
	}
	return append(lines, margin+"{{- end }}"), nil
}

// matters reports whether an option changes a node.
func matters(n node, chosen []choice, option int) bool {
	return slices.ContainsFunc(chosen, func(ch choice) bool {
		other := ch | 1<<option
		if ch.has(option) || !slices.Contains(chosen, other) {
			return false
		}
		a, inA := n[ch]
		b, inB := n[other]
		return inA != inB || !reflect.DeepEqual(a, b)
	})
}

// plain returns the lines of a value without conditions.
func plain(head string, value any, margin string) ([]string, error) {
	var content []byte
	var err error
	if head == "-" {
		content, err = yaml.Marshal([]any{value})
	} else {
		content, err = yaml.Marshal(map[string]any{strings.TrimSuffix(head, ":"): value})
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	for i, line := range lines {
		if line != "" {
			// Expressions of Prometheus and Grafana are text for Helm.
			lines[i] = margin + strings.ReplaceAll(line, "{{", "{{ `{{` }}")
		}
	}
	return lines, nil
}
