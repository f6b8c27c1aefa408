package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/expression"
)

const (
	// celTimeout bounds the evaluation of all rules of an object. The bounds of their cost end
	// them long before.
	celTimeout = 2 * time.Second
	// celPrograms is how many compiled expressions are kept.
	celPrograms = 1024
	// celCompileSteps is what a byte of an expression costs that has to be compiled.
	celCompileSteps = 300
)

// wellKnownConditions are the rules of the type WellKnownConditions, by kind
// and condition.
var wellKnownConditions = map[schema.GroupKind]map[string]workv1.ConditionRule{
	{Group: "batch", Kind: "Job"}: {workv1.WorkComplete: {
		CelExpressions: []string{
			`has(object.status) && has(object.status.conditions) && object.status.conditions.exists(c, c.type in ["Complete", "Failed"] && c.status == "True")`,
		},
		MessageExpression: new(`result ? "Job is finished" : "Job is not finished"`),
	}},
	{Kind: "Pod"}: {workv1.WorkComplete: {
		CelExpressions:    []string{`has(object.status) && has(object.status.phase) && object.status.phase in ["Succeeded", "Failed"]`},
		MessageExpression: new(`result ? "Pod is in phase " + object.status.phase : "Pod is not finished"`),
	}},
}

// evaluator evaluates condition rules.
type evaluator struct {
	// allowed is what the rules of works see of an object.
	allowed FeedbackPaths
	// programs are compiled expressions, by result and text.
	programs *lru.Cache
}

type program struct {
	*expression.Expression
	err error
}

func newEvaluator(allowed FeedbackPaths) *evaluator {
	return &evaluator{allowed: allowed, programs: lru.New(celPrograms)}
}

// rules evaluates condition rules against a live object. What they cost is taken off the budget.
func (e *evaluator) rules(ctx context.Context, budget *bounded.Budget, live *unstructured.Unstructured, rules []workv1.ConditionRule) []metav1.Condition {
	if len(rules) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, celTimeout)
	defer cancel()
	at := &evaluation{evaluator: e, live: live, visible: e.allowed.visible(live.Object), budget: budget, extent: bounded.ExtentOf(live.Object)}
	var conditions []metav1.Condition
	seen := map[string]bool{}
	for _, rule := range rules[:min(len(rules), bounded.MaxConditionRules)] {
		if rule.Condition == "" && rule.Type == workv1.WellKnownConditionsType {
			rule.Condition = workv1.WorkComplete
		}
		if rule.Condition == "" || workv1.IsReservedCondition(rule.Condition) || seen[rule.Condition] {
			continue
		}
		seen[rule.Condition] = true
		conditions = append(conditions, at.rule(ctx, rule))
	}
	return conditions
}

// complete reports whether rules find a live object complete.
func (e *evaluator) complete(ctx context.Context, budget *bounded.Budget, live *unstructured.Unstructured, rules []workv1.ConditionRule) bool {
	for _, condition := range e.rules(ctx, budget, live, rules) {
		if condition.Type == workv1.WorkComplete && condition.Status == metav1.ConditionTrue {
			return true
		}
	}
	return false
}

// evaluation is that of all rules for one object.
type evaluation struct {
	*evaluator
	live *unstructured.Unstructured
	// visible is what the expressions of the work may see of live.
	visible map[string]any
	// extent is that of live.
	extent bounded.Extent
	budget *bounded.Budget
}

func (e *evaluation) rule(ctx context.Context, rule workv1.ConditionRule) metav1.Condition {
	condition := metav1.Condition{Type: rule.Condition, Status: metav1.ConditionUnknown, Reason: workv1.ReasonConditionRuleInvalid}
	object, messageObject := e.visible, e.visible
	switch rule.Type {
	case workv1.WellKnownConditionsType:
		kind := e.live.GroupVersionKind().GroupKind()
		known, ok := wellKnownConditions[kind][rule.Condition]
		if !ok {
			condition.Message = fmt.Sprintf("no well-known condition %s of %s", rule.Condition, kind)
			return condition
		}
		rule.CelExpressions, object = known.CelExpressions, e.live.Object
		if ptr.Deref(rule.Message, "") == "" && ptr.Deref(rule.MessageExpression, "") == "" {
			rule.MessageExpression, messageObject = known.MessageExpression, e.live.Object
		}
	case workv1.CelConditionExpressionsType:
		if len(rule.CelExpressions) == 0 {
			condition.Message = "the rule has no celExpressions"
			return condition
		}
	default:
		condition.Message = fmt.Sprintf("unknown type of rule %q", rule.Type)
		return condition
	}

	condition.Status = metav1.ConditionTrue
	for _, text := range rule.CelExpressions {
		value, reason, err := e.evaluate(ctx, text, cel.BoolType, map[string]any{expression.Object: object, expression.Result: false})
		holds, isBool := value.(bool)
		if err == nil && !isBool {
			reason, err = workv1.ReasonConditionRuleExpressionError, fmt.Errorf("%s: the result is a %T, not a bool", text, value)
		}
		if err != nil {
			condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, truncate(err.Error())
			if reason == workv1.ReasonConditionRuleInternalError {
				condition.Status = metav1.ConditionUnknown
			}
			return condition
		}
		if !holds {
			condition.Status = metav1.ConditionFalse
			break
		}
	}
	condition.Reason = workv1.ReasonConditionRuleEvaluated
	condition.Message = truncate(e.message(ctx, rule, messageObject, condition.Status == metav1.ConditionTrue))
	return condition
}

func (e *evaluation) message(ctx context.Context, rule workv1.ConditionRule, object map[string]any, result bool) string {
	fixed := ptr.Deref(rule.Message, "")
	if text := ptr.Deref(rule.MessageExpression, ""); text != "" {
		value, _, err := e.evaluate(ctx, text, cel.StringType, map[string]any{expression.Object: object, expression.Result: result})
		text, isText := value.(string)
		switch {
		case err != nil && fixed == "":
			return "messageExpression: " + err.Error()
		case err == nil && isText && text != "":
			return text
		}
	}
	switch {
	case fixed != "":
		return fixed
	case result:
		return "Manifest is " + rule.Condition
	default:
		return "Manifest is not " + rule.Condition
	}
}

// evaluate returns the value of an expression, or an error with its reason.
func (e *evaluation) evaluate(ctx context.Context, text string, result *cel.Type, input map[string]any) (any, string, error) {
	compiled, err := e.program(e.budget, text, result)
	if err != nil {
		return nil, workv1.ReasonConditionRuleExpressionError, notEvaluated(err)
	}
	value, err := compiled.Evaluate(ctx, e.budget, input, e.extent)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, workv1.ReasonConditionRuleInternalError, err
		}
		return nil, workv1.ReasonConditionRuleExpressionError, notEvaluated(err)
	}
	return value, "", nil
}

// notEvaluated says of an expression that is too expensive that it was not evaluated.
func notEvaluated(err error) error {
	if errors.Is(err, bounded.ErrTooExpensive) {
		return fmt.Errorf("not evaluated: %w", err)
	}
	return err
}

// program returns a compiled expression.
func (e *evaluator) program(budget *bounded.Budget, text string, result *cel.Type) (*expression.Expression, error) {
	key := result.String() + " " + text
	if cached, ok := e.programs.Get(key); ok {
		known := cached.(program)
		return known.Expression, known.err
	}
	if err := budget.Spend(celCompileSteps * float64(len(text))); err != nil {
		return nil, err
	}
	compiled, err := expression.Compile(text, result)
	e.programs.Add(key, program{compiled, err})
	return compiled, err
}

// workComplete reports whether the work as a whole has run to its end.
func workComplete(work *workv1.ManifestWork, items []*item) bool {
	if !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkComplete) {
		return false
	}
	for _, it := range items {
		if hasCompleteRule(it.config.ConditionRules) {
			return true
		}
	}
	return false
}

func hasCompleteRule(rules []workv1.ConditionRule) bool {
	for _, rule := range rules {
		if rule.Condition == workv1.WorkComplete || rule.Condition == "" && rule.Type == workv1.WellKnownConditionsType {
			return true
		}
	}
	return false
}
