// Package bounded bounds the cost of the expressions of tenants before they are evaluated. The hub rejects an
// expression whose cost has no static bound, or exceeds the limit for an object of ordinary size. The agent computes
// the same bound for the actual object, and evaluates only expressions within the limit.
//
// Costs are in steps. A step is about 50 nanoseconds of one core and at most 64 bytes of memory. Package expression
// covers CEL; package fieldpath covers JSON paths, jq path expressions and JSON pointers.
package bounded

import (
	"errors"
	"fmt"
)

const (
	// ExpressionSteps bounds one evaluation of an expression to about 0.2 seconds.
	ExpressionSteps = 4_000_000
	// PassSteps bounds the evaluation of all expressions of a ManifestWork in one
	// pass of the agent to about one second.
	PassSteps = 16_000_000
	// MaxLength bounds an expression, in bytes.
	MaxLength = 4096
	// MaxExpressions bounds the expressions of all languages in one ManifestWork.
	MaxExpressions = 1000
	// MaxTotalLength bounds the total length of the different expressions of one ManifestWork, in bytes.
	MaxTotalLength = 32 << 10
	// MaxConditionRules and MaxFeedbackPaths bound the condition rules and the JSON paths of one
	// manifestConfig. The status contains an entry of each for each manifest.
	MaxConditionRules, MaxFeedbackPaths = 50, 200
)

// Ordinary is the extent of the objects for which the hub checks expressions. It exceeds the
// extent of a Deployment with ten containers. The agent checks expressions for larger objects.
var Ordinary = Extent{Values: 1000, Bytes: 32 << 10, Width: 40, Depth: 16}

// Extent is the extent of a JSON value.
type Extent struct {
	// Values is the number of nested values, including the value itself and map keys.
	Values int
	// Bytes is the total length of strings, including map keys.
	Bytes int
	// Width is the number of entries of the longest list or map.
	Width int
	// Depth is the number of levels of nested values.
	Depth int
}

// ExtentOf returns the extent of a JSON value.
func ExtentOf(value any) Extent {
	switch value := value.(type) {
	case map[string]any:
		total := Extent{Values: 1, Width: len(value)}
		for key, child := range value {
			total.add(ExtentOf(child))
			total.Values++
			total.Bytes += len(key)
		}
		total.Depth++
		return total
	case []any:
		total := Extent{Values: 1, Width: len(value)}
		for _, child := range value {
			total.add(ExtentOf(child))
		}
		total.Depth++
		return total
	case string:
		return Extent{Values: 1, Bytes: len(value), Depth: 1}
	default:
		return Extent{Values: 1, Depth: 1}
	}
}

func (e *Extent) add(child Extent) {
	e.Values += child.Values
	e.Bytes += child.Bytes
	e.Width = max(e.Width, child.Width)
	e.Depth = max(e.Depth, child.Depth)
}

// Size returns the number of steps to traverse a value of this extent.
func (e Extent) Size() float64 { return float64(e.Values) + float64(e.Bytes)/16 }

// ErrTooExpensive is wrapped by the errors of expressions that are not evaluated because of their cost.
var ErrTooExpensive = errors.New("too expensive")

// CheckLength returns an error if an expression exceeds MaxLength.
func CheckLength(expression string) error {
	if len(expression) > MaxLength {
		return fmt.Errorf("must be no more than %d bytes", MaxLength)
	}
	return nil
}

// Affordable returns an error that wraps ErrTooExpensive if an evaluation exceeds the limit
// for one expression. The message contains the extent of the object.
func Affordable(steps float64, of Extent) error {
	if steps <= ExpressionSteps {
		return nil
	}
	return fmt.Errorf("%w: the evaluation costs up to %.3g steps for an object of %d values and %d bytes, at most %d are allowed", ErrTooExpensive, steps, of.Values, of.Bytes, ExpressionSteps)
}

// Budget is the remaining budget for the expressions of one pass. The zero value allows
// no evaluation. It is not safe for concurrent use.
type Budget struct{ left float64 }

// NewBudget returns a budget of PassSteps.
func NewBudget() *Budget { return &Budget{left: PassSteps} }

// SpendOn subtracts the cost of one evaluation for an object from the budget. It returns an error that wraps
// ErrTooExpensive if the cost exceeds the limit for one expression or the budget.
func (b *Budget) SpendOn(of Extent, steps float64) error {
	if err := Affordable(steps, of); err != nil {
		return err
	}
	return b.Spend(steps)
}

// Spend subtracts steps from the budget. It returns an error that wraps ErrTooExpensive if they exceed the budget.
func (b *Budget) Spend(steps float64) error {
	if steps > b.left {
		return fmt.Errorf("%w: the expressions of the ManifestWork exceed %d steps in total", ErrTooExpensive, PassSteps)
	}
	b.left -= steps
	return nil
}
