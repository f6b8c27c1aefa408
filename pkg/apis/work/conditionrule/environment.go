// Package conditionrule holds what hub and agent must agree on about the
// condition rules of a ManifestWork: what the hub accepts, the agent can evaluate.
package conditionrule

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"

	"k8s.io/apiserver/pkg/cel/library"

	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

// Reserved tells whether a condition is set by the agent itself and never by a rule.
func Reserved(condition string) bool {
	switch condition {
	case workv1.WorkApplied, workv1.WorkDeleting, workv1.ManifestStatusFeedbackSynced:
		return true
	}
	return false
}

// NewEnvironment returns the environment of the CEL expressions of a rule. They
// see the live object as object and, in a messageExpression, the outcome of
// the rule as result. Of functions they have those of Kubernetes' own CEL, and
// hasConditions(object.status).
func NewEnvironment() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("object", cel.DynType), cel.Variable("result", cel.BoolType),
		cel.OptionalTypes(), ext.Strings(), ext.Lists(), ext.Sets(), ext.Encoders(),
		library.Lists(), library.Regex(), library.URLs(), library.Quantity(), library.IP(), library.CIDR(), library.Format(), library.SemverLib(),
		cel.Function("hasConditions", cel.Overload("status_has_conditions", []*cel.Type{cel.DynType}, cel.BoolType, cel.UnaryBinding(hasConditions))),
		cel.HomogeneousAggregateLiterals(), cel.CrossTypeNumericComparisons(true),
	)
}

// hasConditions tells whether a status has any conditions.
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
