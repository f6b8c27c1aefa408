package expression

import (
	"fmt"
	"math"
	"slices"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
)

const (
	// maxNodes bounds an expression after the expansion of macros. The type checker
	// is quadratic in it.
	maxNodes = 600
	// maxNesting bounds how many loops are within each other.
	maxNesting = 4
	// maxType bounds the tree of a type: a list of maps of texts has four nodes.
	maxType = 24
	// iteration is what one iteration of a loop costs beyond its body.
	iteration = 12
	// maxEmpty bounds the empty lists and maps: to find out what they are of is quadratic too.
	maxEmpty = 16
	// macroNodes is how many nodes a macro is expanded to beyond its arguments.
	macroNodes = 12
	// construct is what it costs to construct a list or map beyond its entries.
	construct = 8
	// visit is what the evaluation of one node costs beyond its operands.
	visit = 4
)

// Macros of libraries; those of CEL itself are operators.
const (
	optMap     = "optMap"
	optFlatMap = "optFlatMap"
	sortBy     = "sortBy"
)

// value is a bound of what a part of an expression evaluates to.
type value struct {
	// size is in steps that it takes to go through the value, as of bounded.Extent. What
	// the value contains twice counts twice.
	size float64
	// width is the number of entries of the longest list or map in the value.
	width float64
	// hops is how deep lists are in each other that were concatenated without a copy.
	hops float64
	// types is the number of nodes of its type.
	types float64
	// atom is whether the value is known to be no list or map.
	atom bool
	// literal is the value itself if the expression contains it, else nil.
	literal any
}

// text is an atom of a length in bytes.
func text(bytes float64) value { return value{size: 1 + bytes/16, types: 1, atom: true} }

// scalar is a number, a bool or a short text.
var scalar = text(48)

// bytes bounds the length of the value as text.
func (v value) bytes() float64 { return 16 * v.size }

// traversal is what it costs to go through all of the value.
func (v value) traversal() float64 { return v.size * (1 + v.hops) }

// either is a bound of two values of which one is meant.
func either(a, b value) value {
	return value{
		size: max(a.size, b.size), width: max(a.width, b.width), hops: max(a.hops, b.hops), types: max(a.types, b.types),
		atom: a.atom && b.atom,
	}
}

// within is a bound of a list or map with entries of these values.
func within(entries ...value) value {
	list := value{size: 1, width: float64(len(entries)), types: 1}
	for _, entry := range entries {
		list.size += entry.size
		list.width = max(list.width, entry.width)
		list.hops = max(list.hops, entry.hops)
		list.types = max(list.types, 1+entry.types)
	}
	return list
}

// analysis goes through an expression once for one assumption about its variables.
type analysis struct {
	object value
	// elementWidths is how the width of the entries of a list is bounded: by the
	// longest list in it, or, if set, by the size of the entry. Either holds; the first is
	// better for loops over independent lists, the second for a loop over a list in each entry.
	elementWidths bool
	scopes        []scope
}

type scope struct {
	name  string
	value value
}

// analyze returns what the evaluation of an expression costs at worst if the variable
// object has an extent. It is an error if the expression has a part whose cost or
// result has no static bound.
func analyze(root celast.Expr, of bounded.Extent) (float64, error) {
	total, empty := nodes(root)
	if total > maxNodes {
		return 0, fmt.Errorf("has more than %d parts, with macros expanded", maxNodes)
	}
	if empty > maxEmpty {
		return 0, fmt.Errorf("has more than %d empty lists and maps", maxEmpty)
	}
	steps := math.Inf(1)
	for _, elementWidths := range []bool{false, true} {
		a := &analysis{elementWidths: elementWidths, object: value{size: of.Size(), width: float64(of.Width), types: 1}}
		_, cost, err := a.expr(root)
		if err != nil {
			return 0, err
		}
		steps = min(steps, cost)
	}
	return steps, nil
}

// nodes returns the number of nodes of an expression once its macros are expanded, and
// how many of them are empty lists and maps.
func nodes(e celast.Expr) (total, empty float64) {
	total = 1
	add := func(part celast.Expr, times float64) {
		n, without := nodes(part)
		total += times * n
		empty += times * without
	}
	switch e.Kind() {
	case celast.SelectKind:
		add(e.AsSelect().Operand(), 1)
	case celast.ListKind:
		if e.AsList().Size() == 0 {
			empty++
		}
		for _, entry := range e.AsList().Elements() {
			add(entry, 1)
		}
	case celast.MapKind:
		if e.AsMap().Size() == 0 {
			empty++
		}
		for _, entry := range e.AsMap().Entries() {
			add(entry.AsMapEntry().Key(), 1)
			add(entry.AsMapEntry().Value(), 1)
		}
	case celast.CallKind:
		call := e.AsCall()
		for _, arg := range call.Args() {
			add(arg, 1)
		}
		if !call.IsMemberFunction() {
			break
		}
		copies := 1.0
		switch call.FunctionName() {
		case optMap, optFlatMap:
			copies = 2
			total += macroNodes
		case operators.All, operators.Exists, operators.ExistsOne, operators.Filter, operators.Map, sortBy:
			total += macroNodes
		}
		add(call.Target(), copies)
	}
	return total, empty
}

// expr returns a bound of the value of an expression and of the steps it takes.
func (a *analysis) expr(e celast.Expr) (value, float64, error) {
	out, steps, err := a.node(e)
	switch {
	case err != nil:
		return value{}, 0, err
	case out.types > maxType:
		return value{}, 0, fmt.Errorf("has a part whose type is nested too deep, of more than %d lists, maps and other types", maxType)
	case out.size > bounded.ExpressionSteps:
		// The steps of what uses the value would not tell: it may be used lazily.
		steps = max(steps, out.size)
	}
	return out, steps + visit, nil
}

func (a *analysis) node(e celast.Expr) (value, float64, error) {
	switch e.Kind() {
	case celast.LiteralKind:
		literal := e.AsLiteral()
		out := scalar
		switch content := literal.(type) {
		case types.String:
			out = text(float64(len(content)))
		case types.Bytes:
			out = text(float64(len(content)))
		}
		out.literal = literal.Value()
		return out, 0, nil
	case celast.IdentKind:
		return a.identifier(e.AsIdent())
	case celast.SelectKind:
		out, steps, err := a.expr(e.AsSelect().Operand())
		if e.AsSelect().IsTestOnly() {
			out = scalar
		}
		out.literal = nil
		return out, steps + 1, err
	case celast.ListKind:
		entries, steps, err := a.all(e.AsList().Elements())
		return within(entries...), steps + construct + float64(len(entries)), err
	case celast.MapKind:
		return a.mapping(e.AsMap())
	case celast.CallKind:
		return a.call(e.AsCall())
	default:
		return value{}, 0, fmt.Errorf("constructs an object, which is not supported")
	}
}

func (a *analysis) identifier(name string) (value, float64, error) {
	for _, scope := range slices.Backward(a.scopes) {
		if scope.name == name {
			return scope.value, 0, nil
		}
	}
	switch name {
	case Object:
		return a.object, 0, nil
	case Result, "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "dyn", "optional_type", "google":
		return scalar, 0, nil
	}
	return value{}, 0, fmt.Errorf("undeclared reference to %q", name)
}

func (a *analysis) all(list []celast.Expr) ([]value, float64, error) {
	values, steps := make([]value, len(list)), 0.0
	for i, e := range list {
		out, cost, err := a.expr(e)
		if err != nil {
			return nil, 0, err
		}
		values[i] = out
		steps += cost
	}
	return values, steps, nil
}

func (a *analysis) mapping(m celast.MapExpr) (value, float64, error) {
	keys, values, steps := value{}, make([]value, 0, 2*m.Size()), 0.0
	for _, entry := range m.Entries() {
		pair, cost, err := a.all([]celast.Expr{entry.AsMapEntry().Key(), entry.AsMapEntry().Value()})
		if err != nil {
			return value{}, 0, err
		}
		keys.types = max(keys.types, pair[0].types)
		steps += cost + pair[0].traversal()
		values = append(values, pair...)
	}
	out := within(values...)
	out.width = max(out.width/2, 1)
	for _, v := range values {
		out.width = max(out.width, v.width)
	}
	out.types += keys.types
	return out, steps + construct + float64(len(values)), nil
}

// loop is a bound of what the body of a loop costs and returns, over all iterations.
type loop struct {
	iterations float64
	// one is the largest value of one iteration, all the sum of the sizes of all.
	one value
	all float64
	// steps is what all iterations cost.
	steps float64
}

// over returns the bounds of a loop over the entries of a list or map. The bounds are sums,
// products and maxima of the sizes of entries, so they are convex: over entries that
// have a total size, the sum is largest if one entry has all of it and the others nothing.
func (a *analysis) over(list value, name string, body celast.Expr) (loop, error) {
	if len(a.scopes) >= maxNesting {
		return loop{}, fmt.Errorf("has more than %d loops within each other", maxNesting)
	}
	n := list.width
	entry := func(size float64) value {
		v := value{size: size, width: list.width, hops: list.hops, types: list.types}
		if a.elementWidths {
			v.width = size
		}
		return v
	}
	least, leastSteps, err := a.in(name, entry(0), body)
	if err != nil {
		return loop{}, err
	}
	most, mostSteps, err := a.in(name, entry(list.size), body)
	if err != nil {
		return loop{}, err
	}
	return loop{
		iterations: n, one: most,
		all:   n*(1+least.size) + most.size - least.size,
		steps: n*(iteration+list.hops+leastSteps) + mostSteps - leastSteps,
	}, nil
}

// in returns the bounds of an expression with one more variable.
func (a *analysis) in(name string, variable value, body celast.Expr) (value, float64, error) {
	a.scopes = append(a.scopes, scope{name, variable})
	defer func() { a.scopes = a.scopes[:len(a.scopes)-1] }()
	return a.expr(body)
}
