package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/auth/rbac/validation"
)

const (
	// maxComparisons bounds the words that the atoms of one Budget are compared with.
	// Reaching it takes seconds; common comparisons stay far below it.
	maxComparisons = 100_000_000
	// atomComparisons is the minimum cost of an atom, for the memory that it takes. It
	// limits a Budget to 100,000 atoms.
	atomComparisons = 1000
)

// Everything contains the rules of a caller with all permissions.
var Everything = []rbacv1.PolicyRule{
	{APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}},
	{NonResourceURLs: []string{rbacv1.NonResourceAll}, Verbs: []string{rbacv1.VerbAll}},
}

// Budget bounds the cost of comparing rules. A comparison breaks rules down into
// atoms, one for each combination of group, resource, verb and name, so a rule of a
// few kilobytes can have billions of them. A Budget must not be used concurrently.
type Budget struct {
	// left is a floating-point number because the products exceed integers.
	left float64
}

// NewBudget returns an unspent Budget.
func NewBudget() *Budget { return &Budget{left: maxComparisons} }

// Uncovered returns the wanted rules that the held rules do not cover; it may break
// them down into atoms. If the comparison exceeds the budget, nothing counts as
// covered: Uncovered returns all wanted rules that grant something, and false.
func (b *Budget) Uncovered(held, wanted []rbacv1.PolicyRule) (missing []rbacv1.PolicyRule, ok bool) {
	if equality.Semantic.DeepEqual(held, wanted) {
		return nil, true
	}
	if len(held) == 0 {
		return granting(wanted), true
	}
	cost := atoms(wanted...) * max(atomComparisons, words(held))
	if cost > b.left {
		return granting(wanted), false
	}
	b.left -= cost
	_, missing = validation.Covers(held, wanted)
	return missing, true
}

// CoversEverything reports whether the held rules cover all rules. It uses no Budget,
// because Everything has only two atoms.
func CoversEverything(held []rbacv1.PolicyRule) bool {
	covers, _ := validation.Covers(held, Everything)
	return covers
}

// granting returns the rules that allow something. A rule without verbs does not.
func granting(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var kept []rbacv1.PolicyRule
	for _, rule := range rules {
		if atoms(rule) > 0 {
			kept = append(kept, rule)
		}
	}
	return kept
}

// atoms returns the number of atoms that rules break down into.
func atoms(rules ...rbacv1.PolicyRule) float64 {
	var n float64
	for _, rule := range rules {
		verbs := float64(len(rule.Verbs))
		names := float64(max(1, len(rule.ResourceNames)))
		n += float64(len(rule.APIGroups))*float64(len(rule.Resources))*verbs*names + float64(len(rule.NonResourceURLs))*verbs
	}
	return n
}

// words returns the number of words that an atom is compared with.
func words(rules []rbacv1.PolicyRule) float64 {
	n := 0
	for _, rule := range rules {
		n += 1 + len(rule.Verbs) + len(rule.APIGroups) + len(rule.Resources) + len(rule.ResourceNames) + len(rule.NonResourceURLs)
	}
	return float64(n)
}
