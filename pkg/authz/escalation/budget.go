package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

// maxCopied bounds the rules that one check keeps for the bindings of a spec.
const maxCopied = 100_000

// budget bounds the cost of one check.
type budget struct {
	comparisons *rbac.Budget
	copies      int
}

func newBudget() *budget {
	return &budget{comparisons: rbac.NewBudget(), copies: maxCopied}
}

// keep deducts rules that are kept, and reports whether the budget allows them.
func (b *budget) keep(rules int) bool {
	if rules > b.copies {
		return false
	}
	b.copies -= rules
	return true
}

// uncovered returns the wanted rules that the held rules do not cover. If the comparison
// exceeds the budget, it returns all wanted rules that grant something.
func (b *budget) uncovered(held, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	missing, _ := b.comparisons.Uncovered(held, wanted)
	return missing
}
