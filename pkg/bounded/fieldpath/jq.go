package fieldpath

import (
	"context"
	"errors"
	"fmt"

	"github.com/itchyny/gojq"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

// JQ is a jq path expression: fields, indexes, iteration, and select with comparisons of fields with literals. It
// selects each field at most once. The cost of other jq expressions has no static bound.
type JQ struct {
	// parts is the number of parts of the expression.
	parts float64
	code  *gojq.Code
}

// ParseJQ parses a jq path expression. It returns an error for all other jq expressions.
func ParseJQ(text string) (*JQ, error) {
	if err := bounded.CheckLength(text); err != nil {
		return nil, err
	}
	text = jqSpelling(text)
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	check := jqCheck{iterates: true}
	if err := check.path(query); err != nil {
		return nil, err
	}
	whole, err := gojq.Parse("path(" + text + ")")
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(whole, gojq.WithEnvironLoader(func() []string { return nil }))
	if err != nil {
		return nil, err
	}
	return &JQ{parts: check.parts, code: code}, nil
}

// Steps returns the maximum cost of Paths for an object of an extent.
func (q *JQ) Steps(of bounded.Extent) float64 {
	return jqSteps * (float64(of.Values)*(q.parts+float64(of.Depth)) + of.Size())
}

// Paths returns the paths of the fields that the expression selects. It subtracts its cost from
// the budget. The error wraps bounded.ErrTooExpensive if the cost exceeds the budget.
func (q *JQ) Paths(ctx context.Context, budget *bounded.Budget, object map[string]any, of bounded.Extent) ([][]any, error) {
	steps := q.Steps(of)
	if err := budget.SpendOn(of, steps); err != nil {
		return nil, err
	}
	results := q.code.RunWithContext(ctx, jqInput(object))
	var paths [][]any
	for {
		result, more := results.Next()
		if !more {
			return paths, nil
		}
		switch result := result.(type) {
		case error:
			return nil, result
		case []any:
			fromStart(object, result)
			paths = append(paths, result)
		default:
			return nil, fmt.Errorf("unexpected path %v", result)
		}
	}
}

// fromStart replaces the indexes of a path that count from the end of a list.
func fromStart(at any, path []any) {
	for i, step := range path {
		switch step := step.(type) {
		case string:
			fields, _ := at.(map[string]any)
			at = fields[step]
		case int:
			list, _ := at.([]any)
			if step < 0 {
				step += len(list)
			}
			if path[i] = step; step < 0 || step >= len(list) {
				return
			}
			at = list[step]
		}
	}
}

// jqInput returns a copy of a JSON value with the number types of gojq.
func jqInput(value any) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for key, child := range value {
			result[key] = jqInput(child)
		}
		return result
	case []any:
		result := make([]any, len(value))
		for i, child := range value {
			result[i] = jqInput(child)
		}
		return result
	case int64:
		return int(value)
	}
	return value
}

// jqCheck checks that an expression is a path expression, and counts its parts.
type jqCheck struct {
	parts float64
	// iterates is true if iteration is allowed. In a condition it would select an entry more than once.
	iterates bool
}

var errNotPath = errors.New("must consist of fields, indexes, iteration and select with comparisons")

func (c *jqCheck) path(query *gojq.Query) error {
	c.parts++
	switch {
	case query == nil || len(query.FuncDefs) > 0 || len(query.Imports) > 0 || query.Meta != nil || len(query.Patterns) > 0:
		return errNotPath
	case query.Op == gojq.OpPipe:
		return errors.Join(c.path(query.Left), c.path(query.Right))
	case query.Op != 0 || query.Term == nil:
		return errNotPath
	}
	term := query.Term
	switch term.Type {
	case gojq.TermTypeIdentity:
	case gojq.TermTypeIndex:
		if err := c.index(term.Index); err != nil {
			return err
		}
	case gojq.TermTypeQuery:
		if err := c.path(term.Query); err != nil {
			return err
		}
	case gojq.TermTypeFunc:
		if term.Func.Name != "select" || len(term.Func.Args) != 1 {
			return fmt.Errorf("function %s is not supported: %w", term.Func.Name, errNotPath)
		}
		argument := jqCheck{}
		err := argument.condition(term.Func.Args[0])
		c.parts += argument.parts
		if err != nil {
			return err
		}
	default:
		return errNotPath
	}
	for _, suffix := range term.SuffixList {
		c.parts++
		switch {
		case suffix.Index != nil:
			if err := c.index(suffix.Index); err != nil {
				return err
			}
		case suffix.Iter && !c.iterates:
			return errors.New("a condition of select must not iterate")
		}
	}
	return nil
}

func (c *jqCheck) index(index *gojq.Index) error {
	switch {
	case index == nil || index.IsSlice || index.End != nil || index.Str != nil && len(index.Str.Queries) > 0:
		return errNotPath
	case index.Start != nil && !isLiteral(index.Start):
		return errors.New("an index must be a literal")
	}
	return nil
}

// condition checks the argument of select.
func (c *jqCheck) condition(query *gojq.Query) error {
	c.parts++
	if query == nil || len(query.FuncDefs) > 0 || len(query.Patterns) > 0 {
		return errNotPath
	}
	switch query.Op {
	case gojq.OpAnd, gojq.OpOr:
		return errors.Join(c.condition(query.Left), c.condition(query.Right))
	case gojq.OpEq, gojq.OpNe, gojq.OpLt, gojq.OpLe, gojq.OpGt, gojq.OpGe:
		switch {
		case isLiteral(query.Right):
			return c.path(query.Left)
		case isLiteral(query.Left):
			return c.path(query.Right)
		}
	case 0:
		if term := query.Term; term != nil && term.Type == gojq.TermTypeQuery && len(term.SuffixList) == 0 {
			return c.condition(term.Query)
		}
	}
	return errors.New("select must compare a field with a literal")
}

// isLiteral reports whether an expression is a string, a number, a boolean or null.
func isLiteral(query *gojq.Query) bool {
	if query == nil || query.Op != 0 || query.Term == nil || len(query.FuncDefs) > 0 || len(query.Term.SuffixList) > 0 {
		return false
	}
	switch term := query.Term; term.Type {
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
		return true
	case gojq.TermTypeString:
		return len(term.Str.Queries) == 0
	case gojq.TermTypeUnary:
		return term.Unary.Term.Type == gojq.TermTypeNumber && len(term.Unary.Term.SuffixList) == 0
	}
	return false
}
