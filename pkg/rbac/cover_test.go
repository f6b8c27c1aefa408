package rbac

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func named(rule rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	rule.ResourceNames = names
	return rule
}

func url(url string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: []string{url}, Verbs: []string{"get"}}
}

// list returns n different words.
func list(n int) []string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprint("w", i)
	}
	return words
}

func TestUncovered(t *testing.T) {
	t.Parallel()
	type rules = []rbacv1.PolicyRule
	for name, test := range map[string]struct {
		held, wanted, want rules
	}{
		"nothing":                          {nil, nil, nil},
		"equal rules":                      {rules{rule("", "pods", "get")}, rules{rule("", "pods", "get")}, nil},
		"all names, one name held":         {rules{named(rule("", "pods", "get"), "a")}, rules{rule("", "pods", "get")}, rules{rule("", "pods", "get")}},
		"one name, all names held":         {rules{rule("", "pods", "get")}, rules{named(rule("", "pods", "get"), "a")}, nil},
		"verbs held by several rules":      {rules{rule("", "pods", "get"), rule("", "pods", "list")}, rules{rule("", "pods", "get", "list")}, nil},
		"one verb of two held":             {rules{rule("", "pods", "get")}, rules{rule("", "pods", "get", "list")}, rules{rule("", "pods", "list")}},
		"subresource of every resource":    {rules{rule("apps", "*/scale", "get")}, rules{rule("apps", "deployments/scale", "get")}, nil},
		"resource of a subresource":        {rules{rule("apps", "*/scale", "get")}, rules{rule("apps", "deployments", "get")}, rules{rule("apps", "deployments", "get")}},
		"URL below a held prefix":          {rules{url("/metrics/*")}, rules{url("/metrics/x")}, nil},
		"URL outside of a held prefix":     {rules{url("/metrics/*")}, rules{url("/healthz")}, rules{url("/healthz")}},
		"URL, all resources held":          {Everything[:1], rules{url("/healthz")}, rules{url("/healthz")}},
		"resource, all URLs held":          {Everything[1:], rules{rule("", "pods", "get")}, rules{rule("", "pods", "get")}},
		"everything, everything held":      {Everything, append(rules{url("/healthz"), rule("", "pods", "get")}, Everything...), nil},
		"everything, all resources held":   {Everything[:1], Everything, Everything[1:]},
		"no verbs, nothing held":           {nil, rules{rule("", "pods")}, nil},
		"no verbs, something held":         {rules{url("/healthz")}, rules{rule("", "pods")}, nil},
		"no groups, nothing held":          {nil, rules{{Resources: []string{"pods"}, Verbs: []string{"get"}}}, nil},
		"nothing held":                     {nil, rules{rule("", "pods", "get", "list"), rule("", "pods")}, rules{rule("", "pods", "get", "list")}},
		"everything of a namespaced group": {rules{rule("apps", "*", "*")}, rules{rule("*", "deployments", "get")}, rules{rule("*", "deployments", "get")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := NewBudget().Uncovered(test.held, test.wanted)
			if !ok || !equality.Semantic.DeepEqual(got, test.want) {
				t.Errorf("Uncovered(%v, %v) = %v, %t, want %v, true", test.held, test.wanted, got, ok, test.want)
			}
		})
	}
}

// Rules of a few kilobytes must not cost gigabytes. Rules that exceed the budget
// count as not covered.
func TestUncoveredIsBounded(t *testing.T) {
	t.Parallel()
	held := []rbacv1.PolicyRule{rule("", "pods", "get")}
	for name, huge := range map[string]rbacv1.PolicyRule{
		"many atoms": {APIGroups: list(2000), Resources: list(2000), ResourceNames: list(2000), Verbs: list(2000)},
		// The product is 2^64, which is 0 in integers of 64 bits.
		"product beyond integers": {APIGroups: list(1 << 16), Resources: list(1 << 16), ResourceNames: list(1 << 16), Verbs: list(1 << 16)},
		"many URLs":               {NonResourceURLs: list(1 << 16), Verbs: list(1 << 16)},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := []rbacv1.PolicyRule{huge, rule("", "secrets")}
			if got, ok := NewBudget().Uncovered(held, wanted); ok || len(got) != 1 || len(got[0].Verbs) != len(huge.Verbs) {
				t.Errorf("Uncovered(held, huge) = %d rules, %t, want the huge rule, false", len(got), ok)
			}
			if got, ok := NewBudget().Uncovered(wanted, wanted); !ok || len(got) > 0 {
				t.Errorf("Uncovered(huge, huge) = %d rules, %t, want none, true", len(got), ok)
			}
		})
	}
}

func TestCoversEverything(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		held []rbacv1.PolicyRule
		want bool
	}{
		"nothing":                     {nil, false},
		"everything":                  {Everything, true},
		"everything and more":         {append([]rbacv1.PolicyRule{url("/a"), rule("", "pods", "get")}, Everything...), true},
		"all resources":               {Everything[:1], false},
		"all URLs":                    {Everything[1:], false},
		"all resources with one name": {[]rbacv1.PolicyRule{named(rule("*", "*", "*"), "a"), Everything[1]}, false},
		"all verbs of all resources in one group": {[]rbacv1.PolicyRule{rule("apps", "*", "*"), Everything[1]}, false},
	} {
		if got := CoversEverything(test.held); got != test.want {
			t.Errorf("%s: CoversEverything(%v) = %t, want %t", name, test.held, got, test.want)
		}
	}
}

// All comparisons of one Budget together are bounded.
func TestBudgetIsSpent(t *testing.T) {
	t.Parallel()
	held := []rbacv1.PolicyRule{rule("", "pods", "get")}
	wanted := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: list(6000), Verbs: []string{"get"}}}
	budget, compared := NewBudget(), 0
	for range 100 {
		if _, ok := budget.Uncovered(held, wanted); ok {
			compared++
		}
	}
	if compared != 16 {
		t.Errorf("comparisons of 6,000 atoms within one Budget = %d, want 16", compared)
	}
	if missing, ok := budget.Uncovered(held, held); !ok || len(missing) > 0 {
		t.Errorf("Uncovered(held, held) with a spent Budget = %v, %t, want none, true", missing, ok)
	}
}
