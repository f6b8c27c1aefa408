package expression

import (
	"math"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// call bounds a call of a macro, an operator or a function.
func (a *analysis) call(call celast.CallExpr) (value, float64) {
	if call.IsMemberFunction() {
		if out, steps, isMacro := a.macro(call); isMacro {
			return out, steps
		}
	}
	name, args := call.FunctionName(), call.Args()
	if call.IsMemberFunction() {
		if qualified, ok := qualifiedName(call); ok {
			name = qualified
		} else {
			args = append([]celast.Expr{call.Target()}, args...)
		}
	}
	if name == "has" {
		if len(args) != 1 {
			return a.fail("has() requires one field")
		}
		_, steps := a.expr(args[0])
		return scalar, steps
	}
	f, known := functions[name]
	if !known {
		return a.fail("undeclared reference to %q: condition rules have no such function", name)
	}
	if len(args) < f.least || len(args) > f.most {
		return a.fail("found no matching overload for %q with %d arguments", name, len(args))
	}
	operands, steps := a.all(args)
	out, cost, err := f.bound(operands)
	if err != nil {
		return a.fail("%s: %w", name, err)
	}
	return out, steps + cost
}

// qualifiedName returns the name of a function with a namespace, for example sets.contains. The
// type checker resolves names in the same order.
func qualifiedName(call celast.CallExpr) (string, bool) {
	if call.Target().Kind() != celast.IdentKind {
		return "", false
	}
	name := call.Target().AsIdent() + "." + call.FunctionName()
	_, known := functions[name]
	return name, known
}

// macro bounds a call of a macro. isMacro is false for all other calls.
func (a *analysis) macro(call celast.CallExpr) (out value, steps float64, isMacro bool) {
	args := call.Args()
	var bound func(list value, l loop) (value, float64)
	// body is the index of the argument that each iteration evaluates. filter, if set, is the index of
	// the argument that is evaluated before it.
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
		out, steps = a.optional(call)
		return out, steps, true
	default:
		return value{}, 0, false
	}
	list, steps := a.expr(call.Target())
	variable := a.variable(args[0])
	if filter > 0 {
		steps += a.over(list, variable, args[filter]).steps
	}
	l := a.over(list, variable, args[body])
	out, cost := bound(list, l)
	return out, steps + l.steps + cost, true
}

func (a *analysis) variable(e celast.Expr) string {
	if e.Kind() != celast.IdentKind {
		a.fail("the variable of a macro must be a simple name")
		return ""
	}
	return e.AsIdent()
}

// mapped bounds the list of the results of all iterations.
func mapped(_ value, l loop) (value, float64) {
	return value{size: 1 + l.all, width: max(l.iterations, l.one.width), hops: l.one.hops, types: 1 + l.one.types}, l.iterations
}

// optional bounds optMap and optFlatMap, which evaluate their target twice.
func (a *analysis) optional(call celast.CallExpr) (value, float64) {
	variable := a.variable(call.Args()[0])
	target, steps := a.expr(call.Target())
	if len(a.scopes) >= maxNesting {
		return a.fail("must nest at most %d loops", maxNesting)
	}
	out, cost := a.in(variable, target, call.Args()[1])
	out.types++
	out.literal = nil
	return out, 2*steps + cost + iteration
}
