package escalation

import (
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// compact groups atoms again into rules that mean the same, for people to read.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	// Two rules that differ in one list only are one rule with both lists.
	for _, list := range []func(*rbacv1.PolicyRule) *[]string{
		func(r *rbacv1.PolicyRule) *[]string { return &r.Verbs },
		func(r *rbacv1.PolicyRule) *[]string { return &r.Resources },
		func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames },
		func(r *rbacv1.PolicyRule) *[]string { return &r.NonResourceURLs },
		func(r *rbacv1.PolicyRule) *[]string { return &r.APIGroups },
	} {
		rules = merged(rules, list)
	}
	return rules
}

// merged joins, in the order in which they first appear, the rules that differ in
// the given list only.
func merged(rules []rbacv1.PolicyRule, list func(*rbacv1.PolicyRule) *[]string) []rbacv1.PolicyRule {
	var joined []rbacv1.PolicyRule
	places := map[string]int{}
	for _, rule := range rules {
		words := *list(&rule)
		rest := rule
		// No names mean all of them, so that only rules with names join by names.
		*list(&rest) = words[:0:0]
		key := strconv.FormatBool(len(words) == 0) + identity(&rest)
		place, found := places[key]
		if !found {
			place = len(joined)
			places[key] = place
			*list(&rest) = slices.Clone(words)
			joined = append(joined, rest)
			continue
		}
		into := list(&joined[place])
		*into = append(*into, words...)
	}
	for i := range joined {
		words := list(&joined[i])
		slices.Sort(*words)
		*words = slices.Compact(*words)
	}
	return joined
}

// identity is equal for equal rules only.
func identity(rule *rbacv1.PolicyRule) string {
	var b strings.Builder
	for _, words := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
		b.WriteString(strconv.Itoa(len(words)))
		for _, word := range words {
			b.WriteString(strconv.Quote(word))
		}
	}
	return b.String()
}
