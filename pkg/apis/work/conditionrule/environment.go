// Package conditionrule holds what hub and agent must agree on about the
// condition rules of a ManifestWork: what the hub accepts, the agent can evaluate.
package conditionrule

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

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
// the rule as result.
func NewEnvironment() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("object", cel.DynType), cel.Variable("result", cel.BoolType),
		cel.OptionalTypes(), ext.Strings(), ext.Lists(), ext.Sets(), ext.Encoders(),
		cel.HomogeneousAggregateLiterals(), cel.CrossTypeNumericComparisons(true),
	)
}
