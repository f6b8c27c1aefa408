// Package fieldpath finds fields of objects by JSON paths, jq path expressions and JSON
// pointers, at a cost that is known before an object is looked at.
package fieldpath

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

const (
	// ParseSteps is what one byte of a path costs to be parsed. Who parses a path to evaluate
	// it takes that off the budget first.
	ParseSteps = 20
	// visitSteps is what a value costs that a JSON path passes through: less for its time than for the
	// memory of what is selected. jqSteps is what it costs in jq.
	visitSteps, jqSteps = 60, 20
	// maxIndex bounds the numbers of a slice: the sum of a start and a step must not overflow.
	maxIndex = 1_000_000
)

// JSONPath is a JSON path in the syntax of kubectl, for one value or several.
type JSONPath struct {
	nodes  []jsonpath.Node
	parser *jsonpath.JSONPath
}

// ParseJSONPath parses a path with or without braces. It is an error if the path is empty,
// is not one path, or could select too many values of an ordinary object.
func ParseJSONPath(path string) (*JSONPath, error) {
	if len(path) > bounded.MaxLength {
		return nil, fmt.Errorf("must be no more than %d bytes", bounded.MaxLength)
	}
	template := path
	if !strings.HasPrefix(path, "{") {
		template = "{" + path + "}"
	}
	tree, err := jsonpath.Parse("path", template)
	if err != nil {
		return nil, err
	}
	if len(tree.Root.Nodes) != 1 {
		return nil, errors.New("is not one path")
	}
	action, ok := tree.Root.Nodes[0].(*jsonpath.ListNode)
	if !ok {
		return nil, errors.New("is not one path")
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

// Nodes returns the steps of the path.
func (p *JSONPath) Nodes() []jsonpath.Node { return p.nodes }

// Steps returns what it costs at worst to find the values in an object of an extent.
func (p *JSONPath) Steps(of bounded.Extent) (float64, error) {
	_, visits, err := (&walk{values: float64(of.Values), width: float64(of.Width), depth: float64(of.Depth)}).through(p.nodes, selection{1, 1})
	return visitSteps * visits, err
}

// Find returns the values that the path selects. It takes its cost off the budget; the error
// wraps bounded.ErrTooExpensive if it does not fit.
func (p *JSONPath) Find(budget *bounded.Budget, object map[string]any, of bounded.Extent) ([]any, error) {
	steps, err := p.Steps(of)
	if err != nil {
		return nil, err
	}
	if err := bounded.Affordable(steps, of); err != nil {
		return nil, err
	}
	if err := budget.Spend(steps); err != nil {
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

// walk bounds how many values the steps of a path select and pass through.
type walk struct{ values, width, depth float64 }

// selection is how many values are selected, and how often one and the same at most.
type selection struct{ count, repeats float64 }

func (w *walk) through(nodes []jsonpath.Node, from selection) (selection, float64, error) {
	visits := 0.0
	for _, node := range nodes {
		next, cost, err := w.step(node, from)
		if err != nil {
			return selection{}, 0, err
		}
		next.count = min(next.count, next.repeats*w.values)
		visits += from.count + cost + next.count
		from = next
	}
	return from, visits, nil
}

func (w *walk) step(node jsonpath.Node, from selection) (selection, float64, error) {
	switch node := node.(type) {
	case *jsonpath.ListNode:
		return w.through(node.Nodes, from)
	case *jsonpath.FieldNode, *jsonpath.TextNode, *jsonpath.IntNode, *jsonpath.FloatNode, *jsonpath.BoolNode:
		return from, 0, nil
	case *jsonpath.ArrayNode:
		for _, param := range node.Params {
			if param.Known && (param.Value > maxIndex || param.Value < -maxIndex) {
				return selection{}, 0, fmt.Errorf("the index %d is out of range", param.Value)
			}
		}
		return selection{from.count * max(1, w.width), from.repeats}, 0, nil
	case *jsonpath.WildcardNode:
		return selection{from.count * max(1, w.width), from.repeats}, 0, nil
	case *jsonpath.RecursiveNode:
		// A value is selected once for each value that it is in.
		next := selection{from.count * max(1, w.values), from.repeats * max(1, w.depth)}
		return next, min(next.count, next.repeats*w.values), nil
	case *jsonpath.UnionNode:
		var all selection
		visits := 0.0
		for _, branch := range node.Nodes {
			next, cost, err := w.through(branch.Nodes, from)
			if err != nil {
				return selection{}, 0, err
			}
			all.count += next.count
			all.repeats += next.repeats
			visits += cost
		}
		return all, visits, nil
	case *jsonpath.FilterNode:
		// The operands are read for every entry.
		entries := selection{from.count * max(1, w.width), from.repeats}
		visits := 0.0
		for _, operand := range []*jsonpath.ListNode{node.Left, node.Right} {
			_, cost, err := w.through(operand.Nodes, selection{1, 1})
			if err != nil {
				return selection{}, 0, err
			}
			visits += entries.count * cost
		}
		return entries, visits, nil
	}
	return selection{}, 0, fmt.Errorf("%s is not supported", node)
}
