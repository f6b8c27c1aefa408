// Package bounded decides what the expressions of a tenant may cost before they
// are evaluated. The hub refuses an expression whose cost has no static bound, or
// exceeds the limit for an object of ordinary size. The agent computes the same
// bound for the object that it has, and evaluates only what stays below the limit.
//
// Costs are in steps. A step stands for about 50 nanoseconds of one core, and for
// at most 64 bytes of memory. Package expression covers CEL, package fieldpath
// covers JSON paths, jq path expressions and JSON pointers.
package bounded

import (
	"errors"
	"fmt"
)

const (
	// ExpressionSteps is the most that one evaluation of an expression may cost:
	// about 0.2 seconds.
	ExpressionSteps = 4_000_000
	// PassSteps is the most that all expressions of a ManifestWork may cost in one
	// pass of the agent: about one second.
	PassSteps = 16_000_000
	// MaxLength bounds an expression, in bytes.
	MaxLength = 4096
	// MaxExpressions bounds the expressions of all languages in one ManifestWork.
	MaxExpressions = 1000
	// MaxTotalLength bounds the expressions of one ManifestWork together, in bytes.
	// An expression that occurs more than once counts once.
	MaxTotalLength = 32 << 10
	// MaxConditionRules and MaxFeedbackPaths bound the condition rules and the JSON paths of one
	// manifestConfig, each of which is reported for each manifest.
	MaxConditionRules, MaxFeedbackPaths = 50, 200
)

// Ordinary is the size of object for which the hub admits expressions. It is above
// that of a Deployment with ten containers. Larger objects are judged by the agent.
var Ordinary = Extent{Values: 1000, Bytes: 32 << 10, Width: 40, Depth: 16}

// Extent is how large a JSON value is.
type Extent struct {
	// Values is the number of values in it, with itself and with the keys of maps.
	Values int
	// Bytes is the length of all texts in it, with the keys of maps.
	Bytes int
	// Width is the number of entries of the longest list or map in it.
	Width int
	// Depth is the number of values on the longest way from the value to one in it.
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

// Size is the extent as one number, in steps that it takes to go through all of it.
func (e Extent) Size() float64 { return float64(e.Values) + float64(e.Bytes)/16 }

// ErrTooExpensive is wrapped by the errors of expressions that are not evaluated because of
// what they could cost.
var ErrTooExpensive = errors.New("too expensive")

// Affordable returns an error that wraps ErrTooExpensive if an evaluation of steps is above
// the limit for one expression. The message contains the extent of the object.
func Affordable(steps float64, of Extent) error {
	if steps <= ExpressionSteps {
		return nil
	}
	return fmt.Errorf("%w: the evaluation costs up to %.3g steps for an object of %d values and %d bytes, at most %d are allowed", ErrTooExpensive, steps, of.Values, of.Bytes, ExpressionSteps)
}

// Budget is what the expressions of one pass may still cost. The zero value allows
// nothing. It is for one goroutine.
type Budget struct{ left float64 }

// NewBudget returns a budget of PassSteps.
func NewBudget() *Budget { return &Budget{left: PassSteps} }

// Spend takes the worst case of an evaluation off the budget. It returns an error that
// wraps ErrTooExpensive if the evaluation does not fit any more.
func (b *Budget) Spend(steps float64) error {
	if steps > b.left {
		return fmt.Errorf("%w: the expressions of the ManifestWork exceed %d steps in total", ErrTooExpensive, PassSteps)
	}
	b.left -= steps
	return nil
}
