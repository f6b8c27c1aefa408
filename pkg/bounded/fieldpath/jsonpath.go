// Package fieldpath finds fields of objects by JSON paths, jq path expressions and JSON
// pointers, with a cost that is bounded before the evaluation.
package fieldpath

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/client-go/util/jsonpath"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

const (
	// ParseSteps is the cost of parsing one byte of a path. Callers that parse a path in order to
	// evaluate it subtract this cost from the budget first.
	ParseSteps = 20
	// visitSteps is the cost of a value that a JSON path visits, mainly memory for selected values.
	// jqSteps is the cost of a value in jq.
	visitSteps, jqSteps = 60, 20
	// maxIndex bounds the numbers of a slice, so that the sum of a start and a step does not overflow.
	maxIndex = 1_000_000
)

// JSONPath is a JSON path in the syntax of kubectl. It selects one or more values.
type JSONPath struct {
	nodes  []jsonpath.Node
	parser *jsonpath.JSONPath
}

// ParseJSONPath parses a path with or without braces. It returns an error if the path is empty,
// contains several paths, or could select too many values of an ordinary object.
func ParseJSONPath(path string) (*JSONPath, error) {
	if err := bounded.CheckLength(path); err != nil {
		return nil, err
	}
	template, err := Template(path)
	if err != nil {
		return nil, err
	}
	action, err := parseTemplate(template)
	if err != nil {
		return nil, err
	}
	p := &JSONPath{nodes: action.Nodes, parser: jsonpath.New("path").AllowMissingKeys(true)}
	if err := p.parser.Parse(template); err != nil {
		return nil, err
	}
	steps, err := p.Steps(bounded.Ordinary)
	if err != nil {
		return nil, err
	}
	if err := bounded.Affordable(steps, bounded.Ordinary); err != nil {
		return nil, err
	}
	return p, nil
}

// parseTemplate returns the nodes of a template that is exactly one path.
func parseTemplate(template string) (*jsonpath.ListNode, error) {
	tree, err := jsonpath.Parse("path", template)
	if err != nil {
		return nil, err
	}
	if len(tree.Root.Nodes) == 1 {
		if action, ok := tree.Root.Nodes[0].(*jsonpath.ListNode); ok {
			return action, nil
		}
	}
	return nil, errors.New("must be exactly one path")
}

// Nodes returns the nodes of the path.
func (p *JSONPath) Nodes() []jsonpath.Node { return p.nodes }

// Steps returns the maximum cost of Find for an object of an extent.
func (p *JSONPath) Steps(of bounded.Extent) (float64, error) {
	w := &walk{values: float64(of.Values), width: float64(of.Width), depth: float64(of.Depth)}
	_, visits := w.through(p.nodes, selection{1, 1})
	return visitSteps * visits, w.err
}

// Find returns the values that the path selects. It subtracts its cost from the budget. The error
// wraps bounded.ErrTooExpensive if the cost exceeds the budget.
func (p *JSONPath) Find(budget *bounded.Budget, object map[string]any, of bounded.Extent) ([]any, error) {
	steps, err := p.Steps(of)
	if err != nil {
		return nil, err
	}
	if err := budget.SpendOn(of, steps); err != nil {
		return nil, err
	}
	results, err := p.parser.FindResults(object)
	if err != nil {
		return nil, err
	}
	var found []any
	for _, list := range results {
		for _, value := range list {
			if value.IsValid() && value.CanInterface() {
				found = append(found, value.Interface())
			}
		}
	}
	return found, nil
}

// walk bounds the number of values that the nodes of a path select and visit.
type walk struct {
	values, width, depth float64
	// err is the error of the first node without a bound.
	err error
}

// selection is the number of selected values, and the maximum number of times that one value is selected.
type selection struct{ count, repeats float64 }

func (w *walk) through(nodes []jsonpath.Node, from selection) (selection, float64) {
	visits := 0.0
	for _, node := range nodes {
		next, cost := w.step(node, from)
		next.count = min(next.count, next.repeats*w.values)
		visits += from.count + cost + next.count
		from = next
	}
	return from, visits
}

func (w *walk) step(node jsonpath.Node, from selection) (selection, float64) {
	switch node := node.(type) {
	case *jsonpath.ListNode:
		return w.through(node.Nodes, from)
	case *jsonpath.FieldNode, *jsonpath.TextNode, *jsonpath.IntNode, *jsonpath.FloatNode, *jsonpath.BoolNode:
		return from, 0
	case *jsonpath.ArrayNode:
		for _, param := range node.Params {
			if param.Known && (param.Value > maxIndex || param.Value < -maxIndex) {
				w.err = cmp.Or(w.err, fmt.Errorf("index %d is out of range", param.Value))
			}
		}
		return selection{from.count * max(1, w.width), from.repeats}, 0
	case *jsonpath.WildcardNode:
		return selection{from.count * max(1, w.width), from.repeats}, 0
	case *jsonpath.RecursiveNode:
		// A value is selected once for each value that contains it.
		next := selection{from.count * max(1, w.values), from.repeats * max(1, w.depth)}
		return next, min(next.count, next.repeats*w.values)
	case *jsonpath.UnionNode:
		var all selection
		visits := 0.0
		for _, branch := range node.Nodes {
			next, cost := w.through(branch.Nodes, from)
			all.count += next.count
			all.repeats += next.repeats
			visits += cost
		}
		return all, visits
	case *jsonpath.FilterNode:
		// The operands are evaluated for every entry.
		entries := selection{from.count * max(1, w.width), from.repeats}
		visits := 0.0
		for _, operand := range []*jsonpath.ListNode{node.Left, node.Right} {
			_, cost := w.through(operand.Nodes, selection{1, 1})
			visits += entries.count * cost
		}
		return entries, visits
	}
	w.err = cmp.Or(w.err, fmt.Errorf("%s is not supported", node))
	return selection{}, 0
}
