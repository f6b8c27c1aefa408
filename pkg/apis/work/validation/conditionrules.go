package validation

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work/conditionrule"
)

var conditionRuleEnvironment = sync.OnceValues(conditionrule.NewEnvironment)

func validateConditionRules(rules []work.ConditionRule, fldPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	conditions := map[string]bool{}
	for i, rule := range rules {
		path := fldPath.Index(i)
		errs = append(errs, validateEnum(rule.Type, path.Child("type"), work.CelConditionExpressionsType, work.WellKnownConditionsType)...)
		if conditions[rule.Condition] {
			errs = append(errs, field.Duplicate(path.Child("condition"), rule.Condition))
		}
		conditions[rule.Condition] = true
		if conditionrule.Reserved(rule.Condition) {
			errs = append(errs, field.Invalid(path.Child("condition"), rule.Condition, "is set by the agent itself, not by a rule"))
		}
		if rule.Condition != "" {
			// The agent reports a condition of this type. A status with a malformed
			// type is refused as a whole.
			errs = append(errs, metav1validation.ValidateLabelName(rule.Condition, path.Child("condition"))...)
		}
		if rule.MessageExpression != "" {
			errs = append(errs, validateCEL(rule.MessageExpression, cel.StringType, path.Child("messageExpression"))...)
		}
		for j, expression := range rule.CelExpressions {
			errs = append(errs, validateCEL(expression, cel.BoolType, path.Child("celExpressions").Index(j))...)
		}
		if rule.Type != work.CelConditionExpressionsType {
			continue
		}
		errs = append(errs, require(rule.Condition, path.Child("condition"))...)
		if len(rule.CelExpressions) == 0 {
			errs = append(errs, field.Required(path.Child("celExpressions"), "needed for the type CEL"))
		}
	}
	return errs
}

func validateCEL(expression string, result *cel.Type, fldPath *field.Path) field.ErrorList {
	if len(expression) > maxExpressionLength {
		return field.ErrorList{field.TooLong(fldPath, "", maxExpressionLength)}
	}
	env, err := conditionRuleEnvironment()
	if err != nil {
		return field.ErrorList{field.InternalError(fldPath, err)}
	}
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return field.ErrorList{field.Invalid(fldPath, expression, "is no CEL expression: "+err.Error())}
	}
	if out := ast.OutputType(); !out.IsExactType(result) && !out.IsExactType(cel.DynType) {
		return field.ErrorList{field.Invalid(fldPath, expression, fmt.Sprintf("must give a %s, not a %s", result, out))}
	}
	return nil
}
