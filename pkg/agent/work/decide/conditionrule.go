package decide

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// celTimeout bounds the evaluation of all rules of an object. Usually the budget ends the
	// evaluation much earlier.
	celTimeout = 2 * time.Second
	// celPrograms is the maximum number of cached compiled expressions.
	celPrograms = 1024
	// celCompileSteps is the cost of compiling one byte of an expression.
	celCompileSteps = 300
)

// wellKnownConditions are the rules of the type WellKnownConditions, by kind and condition.
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

// Evaluator evaluates condition rules.
type Evaluator struct {
	// allowed are the parts of an object that expressions can read.
	allowed FeedbackPaths
	// programs caches compiled expressions, by result type and text.
	programs *lru.Cache
}

type program struct {
	*expression.Expression
	err error
}

// NewEvaluator returns an Evaluator whose expressions can read the allowed parts of objects.
func NewEvaluator(allowed FeedbackPaths) *Evaluator {
	return &Evaluator{allowed: allowed, programs: lru.New(celPrograms)}
}

// Rules returns the conditions of a live object according to condition rules. It uses the budget.
func (e *Evaluator) Rules(ctx context.Context, budget *bounded.Budget, live *unstructured.Unstructured, rules []workv1.ConditionRule) []metav1.Condition {
	if len(rules) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, celTimeout)
	defer cancel()
	at := &evaluation{Evaluator: e, live: live, visible: e.allowed.visible(live.Object), budget: budget, extent: bounded.ExtentOf(live.Object)}
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

// Complete reports whether a live object is complete according to condition rules.
func (e *Evaluator) Complete(ctx context.Context, budget *bounded.Budget, live *unstructured.Unstructured, rules []workv1.ConditionRule) bool {
	return meta.IsStatusConditionTrue(e.Rules(ctx, budget, live, rules), workv1.WorkComplete)
}

type evaluation struct {
	*Evaluator
	live *unstructured.Unstructured
	// visible is the part of live that expressions of users can read.
	visible map[string]any
	extent  bounded.Extent
	budget  *bounded.Budget
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
			condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, err.Error()
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
	condition.Message = e.message(ctx, rule, messageObject, condition.Status == metav1.ConditionTrue)
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

// evaluate returns the value of an expression, or an error and the reason for the condition.
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

// notEvaluated adds to the error of a too expensive expression that the expression was not
// evaluated.
func notEvaluated(err error) error {
	if errors.Is(err, bounded.ErrTooExpensive) {
		return fmt.Errorf("not evaluated: %w", err)
	}
	return err
}

func (e *Evaluator) program(budget *bounded.Budget, text string, result *cel.Type) (*expression.Expression, error) {
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

// WorkComplete reports whether a ManifestWork is complete: the status reports it as complete, and
// it still has a rule for completion.
func WorkComplete(work *workv1.ManifestWork, items []*Item) bool {
	return meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkComplete) && slices.ContainsFunc(items, (*Item).Completable)
}

// ItemComplete reports whether the status of a ManifestWork reports a manifest as complete.
func ItemComplete(work *workv1.ManifestWork, it *Item) bool {
	if !it.Completable() {
		return false
	}
	previous := Previous(work.Status.ResourceStatus.Manifests, it.Meta())
	return previous != nil && meta.IsStatusConditionTrue(previous.Conditions, workv1.WorkComplete)
}

// Completable reports whether the manifest has a condition rule for completion.
func (i *Item) Completable() bool {
	return slices.ContainsFunc(i.Config.ConditionRules, func(rule workv1.ConditionRule) bool {
		return rule.Condition == workv1.WorkComplete || rule.Condition == "" && rule.Type == workv1.WellKnownConditionsType
	})
}

// Previous returns the reported status of a manifest, or nil if no status is reported.
func Previous(reported []workv1.ManifestCondition, about workv1.ManifestResourceMeta) *workv1.ManifestCondition {
	for i := range reported {
		other := reported[i].ResourceMeta
		other.Ordinal = about.Ordinal
		// The resource is unknown while the kind is not served.
		if about.Resource == "" || other.Resource == "" {
			other.Resource = about.Resource
		}
		if other == about {
			return &reported[i]
		}
	}
	return nil
}
