package work

import (
	"errors"

	"k8s.io/client-go/util/jsonpath"
)

// maxFound bounds how many values a JSON path may come to. Unions and recursive
// descents select a value more than once, and each multiplies what the others do:
// a path of some kilobytes could ask for more than any memory holds.
const maxFound = 1_000_000

var errTooMuch = errors.New("it may select too many values")

// affordable returns an error if a JSON path may come to too many values of an object.
func affordable(nodes []jsonpath.Node, object map[string]any) error {
	values, depth := extent(object)
	if repeats(nodes, float64(values), float64(depth))*float64(values) > maxFound {
		return errTooMuch
	}
	return nil
}

// extent is how many values there are in a value, and how deep they are.
func extent(value any) (values, depth int) {
	values = 1
	below := func(child any) {
		v, d := extent(child)
		values, depth = values+v, max(depth, d)
	}
	switch value := value.(type) {
	case map[string]any:
		for _, child := range value {
			below(child)
		}
	case []any:
		for _, child := range value {
			below(child)
		}
	}
	return values, depth + 1
}

// repeats bounds how often steps select one and the same value. It is a floating
// point number, since the product exceeds integers.
func repeats(nodes []jsonpath.Node, values, depth float64) float64 {
	times := 1.0
	for _, node := range nodes {
		switch node := node.(type) {
		case *jsonpath.ListNode:
			times *= repeats(node.Nodes, values, depth)
		case *jsonpath.UnionNode:
			branches := 0.0
			for _, branch := range node.Nodes {
				branches += repeats(branch.Nodes, values, depth)
			}
			times *= max(1, branches)
		case *jsonpath.RecursiveNode:
			// Once for each value that it is in.
			times *= depth
		case *jsonpath.FilterNode:
			// The operands are read for every item.
			times *= repeats(node.Left.Nodes, values, depth) * repeats(node.Right.Nodes, values, depth)
		case *jsonpath.IdentifierNode:
			if node.Name == "range" {
				times *= values
			}
		}
	}
	return times
}
