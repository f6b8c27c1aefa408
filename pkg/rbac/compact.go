package rbac

import (
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Compact joins rules that differ in one list only. The result grants the same
// permissions in fewer rules with sorted lists.
func Compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for _, list := range []func(*rbacv1.PolicyRule) *[]string{
		func(r *rbacv1.PolicyRule) *[]string { return &r.Verbs },
		func(r *rbacv1.PolicyRule) *[]string { return &r.Resources },
		func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames },
		func(r *rbacv1.PolicyRule) *[]string { return &r.NonResourceURLs },
		func(r *rbacv1.PolicyRule) *[]string { return &r.APIGroups },
	} {
		rules = joinBy(rules, list)
	}
	return rules
}

// joinBy joins the rules that differ in the given list only, in the order of their first appearance.
func joinBy(rules []rbacv1.PolicyRule, list func(*rbacv1.PolicyRule) *[]string) []rbacv1.PolicyRule {
	var joined []rbacv1.PolicyRule
	positions := map[string]int{}
	for _, rule := range rules {
		words := *list(&rule)
		*list(&rule) = nil
		// A rule without names applies to all names: it must not join one with names.
		key := strconv.FormatBool(len(words) == 0) + string(contentOf([]rbacv1.PolicyRule{rule}))
		position, found := positions[key]
		if !found {
			position = len(joined)
			positions[key] = position
			joined = append(joined, rule)
		}
		into := list(&joined[position])
		*into = append(*into, words...)
	}
	for i := range joined {
		words := list(&joined[i])
		*words = Sorted(*words)
	}
	return joined
}
