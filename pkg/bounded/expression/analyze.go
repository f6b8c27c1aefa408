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
	// maxNodes bounds an expression after the expansion of macros. The type checker is quadratic in it.
	maxNodes = 600
	// maxNesting bounds the nesting of loops.
	maxNesting = 4
	// maxType bounds the nodes of a type. A list of maps of strings has four nodes.
	maxType = 24
	// iteration is the cost of one iteration of a loop without its body.
	iteration = 12
	// maxEmpty bounds the empty lists and maps. Inferring their element types is quadratic too.
	maxEmpty = 16
	// macroNodes bounds the nodes of an expanded macro without its arguments.
	macroNodes = 12
	// construct is the cost of constructing a list or map without its entries.
	construct = 8
	// visit is the cost of evaluating one node without its operands.
	visit = 4
)

// Macros of libraries. The macros of CEL itself are operators.
const (
	optMap     = "optMap"
	optFlatMap = "optFlatMap"
	sortBy     = "sortBy"
)

// value bounds the value of a part of an expression.
type value struct {
	// size is the number of steps to traverse the value, as in bounded.Extent. Shared
	// parts count each time that they occur.
	size float64
	// width is the number of entries of the longest list or map in the value.
	width float64
	// hops is the nesting of lists that were concatenated without a copy.
	hops float64
	// types is the number of nodes of its type.
	types float64
	// atom is true if the value is known not to be a list or map.
	atom bool
	// literal is the value of a literal, or nil.
	literal any
}

// text returns the bound of a string of a length in bytes.
func text(bytes float64) value { return value{size: 1 + bytes/16, types: 1, atom: true} }

// scalar is the bound of a number, a boolean or a short string.
var scalar = text(48)

// bytes bounds the length of the value as a string.
func (v value) bytes() float64 { return 16 * v.size }

func (v value) traversal() float64 { return v.size * (1 + v.hops) }

// either returns a bound of both values.
func either(a, b value) value {
	return value{
		size: max(a.size, b.size), width: max(a.width, b.width), hops: max(a.hops, b.hops), types: max(a.types, b.types),
		atom: a.atom && b.atom,
	}
}

// within returns the bound of a list or map with these entries.
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

// analysis bounds an expression in one pass.
type analysis struct {
	object value
	// elementWidths selects the bound of the width of list entries: by default the longest
	// list in the list, or the size of the entry. Both bounds hold. The first is better for
	// loops over independent lists, the second for a loop over a list in each entry.
	elementWidths bool
	scopes        []scope
	// err is the first error. All methods return zero values after an error.
	err error
}

type scope struct {
	name  string
	value value
}

// analyze returns the maximum cost of evaluating an expression if the variable object has the
// given extent. It returns an error if the cost or the result of a part has no static bound.
func analyze(root celast.Expr, of bounded.Extent) (float64, error) {
	total, empty := nodes(root)
	if total > maxNodes {
		return 0, fmt.Errorf("must have at most %d parts after the expansion of macros", maxNodes)
	}
	if empty > maxEmpty {
		return 0, fmt.Errorf("must contain at most %d empty lists and maps", maxEmpty)
	}
	steps := math.Inf(1)
	for _, elementWidths := range []bool{false, true} {
		a := &analysis{elementWidths: elementWidths, object: value{size: of.Size(), width: float64(of.Width), types: 1}}
		_, cost := a.expr(root)
		if a.err != nil {
			return 0, a.err
		}
		steps = min(steps, cost)
	}
	return steps, nil
}

// nodes returns the number of nodes of an expression after the expansion of macros, and the
// number of empty lists and maps among them.
func nodes(e celast.Expr) (total, empty float64) {
	total = 1
	add := func(part celast.Expr, times float64) {
		n, emptyParts := nodes(part)
		total += times * n
		empty += times * emptyParts
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

// fail records an error unless there is one already.
func (a *analysis) fail(format string, args ...any) (value, float64) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
	return value{}, 0
}

// expr returns the bound of the value of an expression and the steps of its evaluation.
func (a *analysis) expr(e celast.Expr) (value, float64) {
	if a.err != nil {
		return value{}, 0
	}
	out, steps := a.node(e)
	switch {
	case a.err != nil:
		return value{}, 0
	case out.types > maxType:
		return a.fail("must not contain a part whose type consists of more than %d nested types", maxType)
	case out.size > bounded.ExpressionSteps:
		// A part that uses the value lazily does not include this cost in its steps.
		steps = max(steps, out.size)
	}
	return out, steps + visit
}

func (a *analysis) node(e celast.Expr) (value, float64) {
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
		return out, 0
	case celast.IdentKind:
		return a.identifier(e.AsIdent())
	case celast.SelectKind:
		out, steps := a.expr(e.AsSelect().Operand())
		if e.AsSelect().IsTestOnly() {
			out = scalar
		}
		out.literal = nil
		return out, steps + 1
	case celast.ListKind:
		entries, steps := a.all(e.AsList().Elements())
		return within(entries...), steps + construct + float64(len(entries))
	case celast.MapKind:
		return a.mapping(e.AsMap())
	case celast.CallKind:
		return a.call(e.AsCall())
	default:
		return a.fail("must not construct objects")
	}
}

func (a *analysis) identifier(name string) (value, float64) {
	for _, scope := range slices.Backward(a.scopes) {
		if scope.name == name {
			return scope.value, 0
		}
	}
	switch name {
	case Object:
		return a.object, 0
	case Result, "bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "dyn", "optional_type", "google":
		return scalar, 0
	}
	return a.fail("undeclared reference to %q", name)
}

func (a *analysis) all(list []celast.Expr) ([]value, float64) {
	values, steps := make([]value, len(list)), 0.0
	for i, e := range list {
		out, cost := a.expr(e)
		values[i] = out
		steps += cost
	}
	return values, steps
}

func (a *analysis) mapping(m celast.MapExpr) (value, float64) {
	keys, values, steps := value{}, make([]value, 0, 2*m.Size()), 0.0
	for _, entry := range m.Entries() {
		pair, cost := a.all([]celast.Expr{entry.AsMapEntry().Key(), entry.AsMapEntry().Value()})
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
	return out, steps + construct + float64(len(values))
}

// loop bounds the cost and the results of all iterations of a loop.
type loop struct {
	iterations float64
	// one bounds the result of one iteration, all the total size of the results.
	one value
	all float64
	// steps is the cost of all iterations.
	steps float64
}

// over bounds a loop over the entries of a list or map. The bounds are sums, products and maxima
// of the sizes of entries, so they are convex: for entries of a given total size, the sum is
// largest if one entry has all of it and the others are empty.
func (a *analysis) over(list value, name string, body celast.Expr) loop {
	if len(a.scopes) >= maxNesting {
		a.fail("must nest at most %d loops", maxNesting)
		return loop{}
	}
	n := list.width
	entry := func(size float64) value {
		v := value{size: size, width: list.width, hops: list.hops, types: list.types}
		if a.elementWidths {
			v.width = size
		}
		return v
	}
	least, leastSteps := a.in(name, entry(0), body)
	most, mostSteps := a.in(name, entry(list.size), body)
	return loop{
		iterations: n, one: most,
		all:   n*(1+least.size) + most.size - least.size,
		steps: n*(iteration+list.hops+leastSteps) + mostSteps - leastSteps,
	}
}

// in bounds an expression with one more variable.
func (a *analysis) in(name string, variable value, body celast.Expr) (value, float64) {
	a.scopes = append(a.scopes, scope{name, variable})
	defer func() { a.scopes = a.scopes[:len(a.scopes)-1] }()
	return a.expr(body)
}
