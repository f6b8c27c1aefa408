// Package expression compiles and evaluates the CEL expressions of condition rules, with a
// cost that is bounded before the evaluation.
//
//	text ─► parse without macros ─► analyze: names, functions, nesting, types ─► expand macros, check types
//	                                       │
//	                                       └─► maximum cost for an object of a given extent ─► evaluate, or reject
//
// The type checker and some functions of CEL take time and memory that is exponential
// in the length of an expression, and cannot be interrupted. So the analysis rejects
// expressions that contain a construct without a static bound before they run.
package expression

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	celfunctions "github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"

	"k8s.io/apiserver/pkg/cel/library"

	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/fieldpath"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/quantity"
)

// maxDepth bounds the nesting of an expression, in levels of the parser.
const maxDepth = 60

// Variables of an expression.
const (
	// Object is the live object.
	Object = "object"
	// Result is the result of a rule, for its message expression.
	Result = "result"
)

// language is CEL with the functions of Kubernetes and hasConditions(object.status).
type language struct {
	env *cel.Env
	// plain is a parser that does not expand macros, since macros may copy their arguments.
	plain *parser.Parser
	// quantities contains the functions that parse a quantity by name.
	quantities map[string]celfunctions.UnaryOp
}

var sharedLanguage = sync.OnceValues(newLanguage)

func newLanguage() (*language, error) {
	env, err := cel.NewEnv(
		cel.Variable(Object, cel.DynType), cel.Variable(Result, cel.BoolType),
		cel.OptionalTypes(), ext.Strings(), ext.Lists(), ext.Sets(), ext.Encoders(),
		library.Lists(), library.Regex(), library.URLs(), library.Quantity(), library.IP(), library.CIDR(), library.Format(), library.SemverLib(),
		cel.Function("hasConditions", cel.Overload("status_has_conditions", []*cel.Type{cel.DynType}, cel.BoolType, cel.UnaryBinding(hasConditions))),
		cel.HomogeneousAggregateLiterals(), cel.CrossTypeNumericComparisons(true),
		cel.ParserRecursionLimit(maxDepth), cel.ParserExpressionSizeLimit(bounded.MaxLength),
	)
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	plain, err := parser.NewParser(
		parser.EnableOptionalSyntax(true), parser.MaxRecursionDepth(maxDepth), parser.ExpressionSizeCodePointLimit(bounded.MaxLength),
		parser.ErrorRecoveryLimit(1), parser.ErrorRecoveryLookaheadTokenLimit(1), parser.ErrorReportingLimit(1),
	)
	if err != nil {
		return nil, fmt.Errorf("CEL parser: %w", err)
	}
	quantities, err := quantityParsers(env)
	if err != nil {
		return nil, err
	}
	return &language{env: env, plain: plain, quantities: quantities}, nil
}

// hasConditions reports whether a status has any conditions.
func hasConditions(status ref.Val) ref.Val {
	fields, ok := status.(traits.Mapper)
	if !ok {
		return types.False
	}
	value, ok := fields.Find(types.String("conditions"))
	if !ok {
		return types.False
	}
	conditions, ok := value.(traits.Lister)
	return types.Bool(ok && conditions.Size() != types.IntZero)
}

// Expression is a compiled expression. It is safe for concurrent use.
type Expression struct {
	plain   celast.Expr
	program cel.Program
}

// Compile parses, analyzes and checks an expression that returns a value of a type, or of any type for cel.AnyType.
func Compile(text string, result *cel.Type) (*Expression, error) {
	l, err := sharedLanguage()
	if err != nil {
		return nil, err
	}
	if err := bounded.CheckLength(text); err != nil {
		return nil, err
	}
	text = fieldpath.CEL(text)
	plain, problems := l.plain.Parse(common.NewTextSource(text))
	if len(problems.GetErrors()) > 0 {
		return nil, errors.New(problems.ToDisplayString())
	}
	expression := &Expression{plain: plain.Expr()}
	steps, err := expression.Steps(bounded.Ordinary)
	if err != nil {
		return nil, err
	}
	if err := bounded.Affordable(steps, bounded.Ordinary); err != nil {
		return nil, err
	}
	checked, issues := l.env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if out := checked.OutputType(); result != cel.AnyType && !out.IsExactType(result) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("must return %s, but returns %s", result, out)
	}
	expression.program, err = l.env.Program(checked, cel.CustomDecoratorV2(l.checkQuantities), cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, err
	}
	return expression, nil
}

// checkQuantities rejects strings for which the parser of quantities would not terminate.
func (l *language) checkQuantities(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := step.(interpreter.InterpretableCall)
	if !ok || l.quantities[call.Function()] == nil {
		return step, nil
	}
	parse := l.quantities[call.Function()]
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		text, ok := args[0].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[0])
		}
		if err := quantity.Check(string(text)); err != nil {
			return types.WrapErr(err)
		}
		return parse(text)
	}), nil
}

// quantityParsers returns the functions of an environment that parse quantities.
func quantityParsers(env *cel.Env) (map[string]celfunctions.UnaryOp, error) {
	parsers := map[string]celfunctions.UnaryOp{}
	for _, name := range []string{"quantity", "isQuantity"} {
		overloads, err := env.Functions()[name].Bindings()
		if err != nil {
			return nil, fmt.Errorf("CEL function %s: %w", name, err)
		}
		for _, overload := range overloads {
			if overload.Operator == name {
				parsers[name] = overload.Unary
			}
		}
		if parsers[name] == nil {
			return nil, fmt.Errorf("CEL function %s: no implementation", name)
		}
	}
	return parsers, nil
}

// Evaluate returns the value of the expression for variables. of is the extent of the variable object. It subtracts the
// maximum cost of the evaluation from the budget. If the cost exceeds the budget or the limit for one expression, it
// does not evaluate the expression and returns an error that wraps bounded.ErrTooExpensive.
func (e *Expression) Evaluate(ctx context.Context, budget *bounded.Budget, variables map[string]any, of bounded.Extent) (any, error) {
	steps, err := e.Steps(of)
	if err != nil {
		return nil, err
	}
	if err := budget.SpendOn(of, steps); err != nil {
		return nil, err
	}
	out, _, err := e.program.ContextEval(ctx, variables)
	if err != nil {
		return nil, err
	}
	return out.Value(), nil
}

// Steps returns the maximum cost of an evaluation if the variable object has the given extent.
func (e *Expression) Steps(of bounded.Extent) (float64, error) { return analyze(e.plain, of) }
