package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/auth/rbac/validation"
)

const (
	// maxWork bounds what one check compares. A rule of a few kilobytes breaks down
	// into billions of atoms, one for each combination of what it lists; a check
	// that reaches the bound takes seconds, and common ones stay far below it.
	maxWork = 100_000_000
	// maxCopied bounds the rules that one check keeps for the bindings of a spec.
	maxCopied = 100_000
	// atomWork is what an atom costs beside its comparisons.
	atomWork = 1000
)

var (
	everyResource = []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll},
	}}
	everyURL = []rbacv1.PolicyRule{{
		NonResourceURLs: []string{rbacv1.NonResourceAll}, Verbs: []string{rbacv1.VerbAll},
	}}
)

// budget is what a check may still compare.
type budget struct {
	left   float64
	copies int
}

func newBudget() *budget {
	return &budget{left: maxWork, copies: maxCopied}
}

// take reports whether as many rules may still be kept.
func (b *budget) take(rules int) bool {
	if rules > b.copies {
		return false
	}
	b.copies -= rules
	return true
}

// uncovered are the rules among the wanted ones which the held ones do not cover;
// none if all are covered or grant nothing. Where comparing is beyond the budget,
// nothing counts as covered.
func (b *budget) uncovered(held, wanted []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if apiequality.Semantic.DeepEqual(held, wanted) {
		return nil
	}
	// Floating point, since the products exceed integers.
	work := atoms(wanted...) * (atomWork + words(held))
	if len(held) == 0 || work > b.left {
		return granting(wanted)
	}
	b.left -= work
	_, missing := validation.Covers(held, wanted)
	return missing
}

// granting leaves out the rules that allow nothing, such as those without verbs.
func granting(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var kept []rbacv1.PolicyRule
	for _, rule := range rules {
		if atoms(rule) > 0 {
			kept = append(kept, rule)
		}
	}
	return kept
}

// atoms is how many rules the given ones break down into.
func atoms(rules ...rbacv1.PolicyRule) float64 {
	var n float64
	for _, rule := range rules {
		verbs := float64(len(rule.Verbs))
		names := float64(max(1, len(rule.ResourceNames)))
		n += float64(len(rule.APIGroups))*float64(len(rule.Resources))*verbs*names + float64(len(rule.NonResourceURLs))*verbs
	}
	return n
}

// words is what one atom is compared with.
func words(rules []rbacv1.PolicyRule) float64 {
	n := 0
	for _, rule := range rules {
		n += 1 + len(rule.Verbs) + len(rule.APIGroups) + len(rule.Resources) + len(rule.ResourceNames) + len(rule.NonResourceURLs)
	}
	return float64(n)
}
