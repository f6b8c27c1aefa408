package validation

import (
	"github.com/google/cel-go/cel"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/pkg/apis/validate"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/bounded"
	"open-cluster-management.io/hub-apiserver/pkg/bounded/expression"
)

func (e *expressions) validateConditionRules(rules []workv1.ConditionRule, fldPath *field.Path) field.ErrorList {
	if len(rules) > bounded.MaxConditionRules {
		return field.ErrorList{field.TooMany(fldPath, len(rules), bounded.MaxConditionRules)}
	}
	var errs field.ErrorList
	conditions := map[string]bool{}
	for i, rule := range rules {
		path := fldPath.Index(i)
		errs = append(errs, validate.Supported(rule.Type, path.Child("type"), workv1.CelConditionExpressionsType, workv1.WellKnownConditionsType)...)
		if conditions[rule.Condition] {
			errs = append(errs, field.Duplicate(path.Child("condition"), rule.Condition))
		}
		conditions[rule.Condition] = true
		if workv1.IsReservedCondition(rule.Condition) {
			errs = append(errs, field.Invalid(path.Child("condition"), rule.Condition, "is reserved for the agent; choose another condition"))
		}
		if rule.Condition != "" {
			// The agent reports a condition of this type. A status with an invalid type would be rejected as a whole.
			errs = append(errs, metav1validation.ValidateLabelName(rule.Condition, path.Child("condition"))...)
		}
		if text := ptr.Deref(rule.MessageExpression, ""); text != "" {
			errs = append(errs, e.validateCEL(text, cel.StringType, path.Child("messageExpression"))...)
		}
		for j, expression := range rule.CelExpressions {
			errs = append(errs, e.validateCEL(expression, cel.BoolType, path.Child("celExpressions").Index(j))...)
		}
		if rule.Type != workv1.CelConditionExpressionsType {
			continue
		}
		errs = append(errs, validate.Required(rule.Condition, path.Child("condition"))...)
		if len(rule.CelExpressions) == 0 {
			errs = append(errs, field.Required(path.Child("celExpressions"), "must be set if type is CEL"))
		}
	}
	return errs
}

func (e *expressions) validateCEL(text string, result *cel.Type, fldPath *field.Path) field.ErrorList {
	return e.validate(text+" "+result.String(), text, fldPath, "invalid CEL expression", func() error {
		_, err := expression.Compile(text, result)
		return err
	})
}
