package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/cel-go/cel"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/utils/lru"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work/conditionrule"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

const (
	// celCostLimit bounds what the evaluation of one expression costs, in CEL's own
	// units. Once the rules of an object have cost celBudget together, no more of
	// them is evaluated.
	celCostLimit = 1_000_000
	celBudget    = 3 * celCostLimit
	// celTimeout bounds the evaluation of all rules of an object.
	celTimeout = 2 * time.Second
	// celPrograms is how many compiled expressions are kept.
	celPrograms = 1024
)

// wellKnownConditions are the rules of the type WellKnownConditions, by kind
// and condition.
var wellKnownConditions = map[schema.GroupKind]map[string]workv1.ConditionRule{
	{Group: "batch", Kind: "Job"}: {workv1.WorkComplete: {
		CelExpressions: []string{
			`has(object.status) && has(object.status.conditions) && object.status.conditions.exists(c, c.type in ["Complete", "Failed"] && c.status == "True")`,
		},
		MessageExpression: `result ? "Job is finished" : "Job is not finished"`,
	}},
	{Kind: "Pod"}: {workv1.WorkComplete: {
		CelExpressions:    []string{`has(object.status) && has(object.status.phase) && object.status.phase in ["Succeeded", "Failed"]`},
		MessageExpression: `result ? "Pod is in phase " + object.status.phase : "Pod is not finished"`,
	}},
}

// evaluator evaluates condition rules.
type evaluator struct {
	env   *cel.Env
	limit cel.ProgramOption
	// allowed is what the rules of works see of an object.
	allowed FeedbackPaths

	mu       sync.Mutex
	programs *lru.Cache
}

func newEvaluator(allowed FeedbackPaths) (*evaluator, error) {
	env, err := conditionrule.NewEnvironment()
	if err != nil {
		return nil, err
	}
	limit, err := limitTexts(env)
	if err != nil {
		return nil, err
	}
	return &evaluator{env: env, limit: limit, allowed: allowed, programs: lru.New(celPrograms)}, nil
}

// rules evaluates condition rules against a live object.
func (e *evaluator) rules(ctx context.Context, live *unstructured.Unstructured, rules []workv1.ConditionRule) []metav1.Condition {
	if len(rules) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, celTimeout)
	defer cancel()
	at := &evaluation{evaluator: e, live: live, visible: e.allowed.visible(live.Object)}
	var conditions []metav1.Condition
	seen := map[string]bool{}
	for _, rule := range rules {
		if rule.Condition == "" && rule.Type == workv1.WellKnownConditionsType {
			rule.Condition = workv1.WorkComplete
		}
		if rule.Condition == "" || conditionrule.Reserved(rule.Condition) || seen[rule.Condition] {
			continue
		}
		seen[rule.Condition] = true
		conditions = append(conditions, at.rule(ctx, rule))
	}
	return conditions
}

// complete reports whether rules find a live object complete.
func (e *evaluator) complete(ctx context.Context, live *unstructured.Unstructured, rules []workv1.ConditionRule) bool {
	for _, condition := range e.rules(ctx, live, rules) {
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
	// spent is what the expressions evaluated so far have cost.
	spent uint64
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
		if rule.Message == "" && rule.MessageExpression == "" {
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
	for _, expression := range rule.CelExpressions {
		value, reason, err := e.evaluate(ctx, expression, map[string]any{"object": object, "result": false})
		holds, isBool := value.(bool)
		if err == nil && !isBool {
			reason, err = workv1.ReasonConditionRuleExpressionError, fmt.Errorf("%s: the result is a %T, not a bool", expression, value)
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
	if rule.MessageExpression != "" {
		value, _, err := e.evaluate(ctx, rule.MessageExpression, map[string]any{"object": object, "result": result})
		text, isText := value.(string)
		switch {
		case err != nil && rule.Message == "":
			return "messageExpression: " + err.Error()
		case err == nil && isText && text != "":
			return text
		}
	}
	switch {
	case rule.Message != "":
		return rule.Message
	case result:
		return "Manifest is " + rule.Condition
	default:
		return "Manifest is not " + rule.Condition
	}
}

// evaluate returns the value of an expression, or an error with its reason.
func (e *evaluation) evaluate(ctx context.Context, expression string, input map[string]any) (any, string, error) {
	if e.spent > celBudget {
		return nil, workv1.ReasonConditionRuleExpressionError, errors.New("not evaluated: the rules of this manifest cost too much together")
	}
	program, reason, err := e.program(expression)
	if err != nil {
		return nil, reason, err
	}
	out, details, err := program.ContextEval(ctx, input)
	if details != nil && details.ActualCost() != nil {
		e.spent += *details.ActualCost()
	}
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, workv1.ReasonConditionRuleInternalError, err
		}
		return nil, workv1.ReasonConditionRuleExpressionError, err
	}
	return out.Value(), "", nil
}

// program returns a compiled expression, or an error with its reason.
func (e *evaluator) program(expression string) (cel.Program, string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cached, ok := e.programs.Get(expression); ok {
		return cached.(cel.Program), "", nil
	}
	ast, issues := e.env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, workv1.ReasonConditionRuleExpressionError, err
	}
	program, err := e.env.Program(ast, e.limit, cel.CostTracking(&library.CostEstimator{}), cel.CostLimit(celCostLimit), cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, workv1.ReasonConditionRuleInternalError, err
	}
	e.programs.Add(expression, program)
	return program, "", nil
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
