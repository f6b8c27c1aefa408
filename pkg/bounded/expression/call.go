package expression

import (
	"fmt"
	"math"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// call returns the bounds of a call of a macro, an operator or a function.
func (a *analysis) call(call celast.CallExpr) (value, float64, error) {
	if call.IsMemberFunction() {
		if out, steps, is, err := a.macro(call); is {
			return out, steps, err
		}
	}
	name, args := call.FunctionName(), call.Args()
	if call.IsMemberFunction() {
		if qualified, is := qualifiedName(call); is {
			name = qualified
		} else {
			args = append([]celast.Expr{call.Target()}, args...)
		}
	}
	if name == "has" {
		if len(args) != 1 {
			return value{}, 0, fmt.Errorf("has() takes one field")
		}
		_, steps, err := a.expr(args[0])
		return scalar, steps, err
	}
	f, known := functions[name]
	if !known {
		return value{}, 0, fmt.Errorf("undeclared reference to %q: it is no function of condition rules", name)
	}
	if len(args) < f.least || len(args) > f.most {
		return value{}, 0, fmt.Errorf("found no matching overload for %q with %d arguments", name, len(args))
	}
	operands, steps, err := a.all(args)
	if err != nil {
		return value{}, 0, err
	}
	out, cost, err := f.bound(operands)
	if err != nil {
		return value{}, 0, fmt.Errorf("%s: %w", name, err)
	}
	return out, steps + cost, nil
}

// qualifiedName returns the name of a function with a namespace, as sets.contains is. The
// type checker resolves it in the same order.
func qualifiedName(call celast.CallExpr) (string, bool) {
	if call.Target().Kind() != celast.IdentKind {
		return "", false
	}
	name := call.Target().AsIdent() + "." + call.FunctionName()
	_, known := functions[name]
	return name, known
}

// macro returns the bounds of a call if it is one of a macro.
func (a *analysis) macro(call celast.CallExpr) (out value, steps float64, is bool, err error) {
	args := call.Args()
	var bound func(list value, l loop) (value, float64)
	// body is the argument that is evaluated in each iteration, filter one before it.
	body, filter := 1, 0
	switch name := call.FunctionName(); {
	case len(args) == 2 && (name == operators.All || name == operators.Exists || name == operators.ExistsOne):
		bound = func(value, loop) (value, float64) { return scalar, 0 }
	case len(args) == 2 && name == operators.Filter:
		bound = func(list value, l loop) (value, float64) { return list, l.iterations }
	case len(args) == 2 && name == operators.Map:
		bound = mapped
	case len(args) == 3 && name == operators.Map:
		bound, body, filter = mapped, 2, 1
	case len(args) == 2 && name == sortBy:
		bound = func(list value, l loop) (value, float64) {
			return list, 2 * math.Log2(l.iterations+2) * (l.all + l.iterations)
		}
	case len(args) == 2 && (name == optMap || name == optFlatMap):
		return a.optional(call)
	default:
		return value{}, 0, false, nil
	}
	list, steps, err := a.expr(call.Target())
	if err != nil {
		return value{}, 0, true, err
	}
	variable, err := variableName(args[0])
	if err != nil {
		return value{}, 0, true, err
	}
	if filter > 0 {
		l, err := a.over(list, variable, args[filter])
		if err != nil {
			return value{}, 0, true, err
		}
		steps += l.steps
	}
	l, err := a.over(list, variable, args[body])
	if err != nil {
		return value{}, 0, true, err
	}
	out, cost := bound(list, l)
	return out, steps + l.steps + cost, true, nil
}

func variableName(e celast.Expr) (string, error) {
	if e.Kind() != celast.IdentKind {
		return "", fmt.Errorf("the variable of a macro must be a simple name")
	}
	return e.AsIdent(), nil
}

// mapped is the list of what the iterations of a loop return.
func mapped(_ value, l loop) (value, float64) {
	return value{size: 1 + l.all, width: max(l.iterations, l.one.width), hops: l.one.hops, types: 1 + l.one.types}, l.iterations
}

// optional returns the bounds of optMap and optFlatMap, which evaluate their target twice.
func (a *analysis) optional(call celast.CallExpr) (value, float64, bool, error) {
	variable, err := variableName(call.Args()[0])
	if err != nil {
		return value{}, 0, true, err
	}
	target, steps, err := a.expr(call.Target())
	if err != nil {
		return value{}, 0, true, err
	}
	if len(a.scopes) >= maxNesting {
		return value{}, 0, true, fmt.Errorf("has more than %d loops within each other", maxNesting)
	}
	out, cost, err := a.in(variable, target, call.Args()[1])
	out.types++
	out.literal = nil
	return out, 2*steps + cost + iteration, true, err
}
