package executor

import (
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

const (
	// maxAtoms bounds the rules with one verb, one resource and one name each that
	// wanted rules are broken down into. A rule of some kilobytes can have billions.
	maxAtoms = 100_000
	// maxCompared bounds the words that they are compared with, in all.
	maxCompared = 100_000_000
)

// uncovered returns the wanted rules that are not held. It is false if there are
// too many to find out, and then returns none.
func uncovered(held, wanted []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, bool) {
	if ok, _ := validation.Covers(held, everything); ok {
		return nil, true
	}
	atoms := 0.0
	for i := range wanted {
		atoms += atomsOf(&wanted[i])
	}
	words := 1
	for i := range held {
		rule := &held[i]
		words += 1 + len(rule.Verbs) + len(rule.APIGroups) + len(rule.Resources) + len(rule.ResourceNames) + len(rule.NonResourceURLs)
	}
	if atoms > maxAtoms || atoms*float64(words) > maxCompared {
		return nil, false
	}
	_, missing := validation.Covers(held, wanted)
	return compact(missing), true
}

// atomsOf is a floating point number, since the product exceeds integers.
func atomsOf(rule *rbacv1.PolicyRule) float64 {
	verbs, names := float64(len(rule.Verbs)), float64(max(1, len(rule.ResourceNames)))
	return float64(len(rule.APIGroups))*float64(len(rule.Resources))*verbs*names + float64(len(rule.NonResourceURLs))*verbs
}

// compact joins rules that differ in one list only, for people to read.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for _, list := range []func(*rbacv1.PolicyRule) *[]string{
		func(r *rbacv1.PolicyRule) *[]string { return &r.Verbs },
		func(r *rbacv1.PolicyRule) *[]string { return &r.Resources },
		func(r *rbacv1.PolicyRule) *[]string { return &r.ResourceNames },
		func(r *rbacv1.PolicyRule) *[]string { return &r.NonResourceURLs },
	} {
		var joined []rbacv1.PolicyRule
		places := map[string]int{}
		for _, rule := range rules {
			words := *list(&rule)
			if len(words) == 0 {
				joined = append(joined, rule)
				continue
			}
			*list(&rule) = nil
			key := keyOf(&rule)
			*list(&rule) = slices.Clone(words)
			place, found := places[key]
			if !found {
				places[key] = len(joined)
				joined = append(joined, rule)
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
		rules = joined
	}
	return rules
}

// keyOf is equal for equal rules only.
func keyOf(rule *rbacv1.PolicyRule) string {
	var key strings.Builder
	for _, words := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
		key.WriteString(strconv.Itoa(len(words)))
		for _, word := range words {
			key.WriteString(strconv.Quote(word))
		}
	}
	return key.String()
}
