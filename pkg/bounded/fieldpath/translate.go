package fieldpath

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/util/jsonpath"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// ParseFields translates a JSON path into a jq path expression, since the JSON path library does not return the paths
// of values. It supports .field, ['field'], [index], [*], .* and the filter [?(@.field=="value")].
func ParseFields(path string) (*JQ, error) {
	if err := bounded.CheckLength(path); err != nil {
		return nil, err
	}
	text := strings.TrimSpace(path)
	if text != "" && !strings.ContainsRune(".[$@{", rune(text[0])) {
		text = "." + text
	}
	steps, err := fieldSteps(text)
	if err != nil {
		return nil, fmt.Errorf("JSON path %q: %w", path, err)
	}
	return ParseJQ(". | " + strings.Join(steps, " | "))
}

func fieldSteps(path string) ([]string, error) {
	template, err := Template(path)
	if err != nil {
		return nil, err
	}
	action, err := parseTemplate(template)
	if err != nil {
		return nil, err
	}
	steps, err := jqStepsOf(action.Nodes)
	if err == nil && len(steps) == 0 {
		err = errors.New("must contain a field")
	}
	return steps, err
}

// jqStepsOf translates the nodes of a JSON path.
func jqStepsOf(nodes []jsonpath.Node) ([]string, error) {
	var steps []string
	for _, node := range nodes {
		switch node := node.(type) {
		case *jsonpath.FieldNode:
			if node.Value == "" {
				return nil, errors.New("empty field name")
			}
			steps = append(steps, ".["+jqQuote(node.Value)+"]?")
		case *jsonpath.WildcardNode:
			steps = append(steps, ".[]?")
		case *jsonpath.ArrayNode:
			switch first, end, step := node.Params[0], node.Params[1], node.Params[2]; {
			case first.Known && end.Derived && !step.Known:
				steps = append(steps, ".["+strconv.Itoa(first.Value)+"]?")
			case !first.Known && !end.Known && !step.Known:
				steps = append(steps, ".[]?")
			default:
				return nil, errors.New("a slice is not supported")
			}
		case *jsonpath.FilterNode:
			var text *jsonpath.TextNode
			if len(node.Right.Nodes) == 1 {
				text, _ = node.Right.Nodes[0].(*jsonpath.TextNode)
			}
			if node.Operator != "==" || text == nil {
				return nil, errors.New("a filter must compare a field with a quoted string by ==")
			}
			field, err := jqStepsOf(node.Left.Nodes)
			if err != nil {
				return nil, err
			}
			steps = append(steps, ".[]? | select(("+strings.Join(append([]string{"."}, field...), " | ")+") == "+jqQuote(text.Text)+")")
		default:
			return nil, fmt.Errorf("%s is not supported", node)
		}
	}
	return steps, nil
}
