package executor

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func TestUncovered(t *testing.T) {
	t.Parallel()
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	named := func(rule rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
		rule.ResourceNames = names
		return rule
	}
	url := func(url string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{NonResourceURLs: []string{url}, Verbs: []string{"get"}}
	}
	type rules = []rbacv1.PolicyRule
	for _, test := range []struct {
		name               string
		held, wanted, want rules
	}{
		{"nothing is held by everybody", nil, nil, nil},
		{"the same", rules{rule("", "pods", "get")}, rules{rule("", "pods", "get")}, nil},
		{"no rule of all names by one", rules{named(rule("", "pods", "get"), "a")}, rules{rule("", "pods", "get")}, rules{rule("", "pods", "get")}},
		{"one name by all", rules{rule("", "pods", "get")}, rules{named(rule("", "pods", "get"), "a")}, nil},
		{"verbs by several rules", rules{rule("", "pods", "get"), rule("", "pods", "list")}, rules{rule("", "pods", "get", "list")}, nil},
		{"what is missing in one rule", nil, rules{rule("", "pods", "list", "get"), rule("", "secrets", "get", "list")},
			rules{{APIGroups: []string{""}, Resources: []string{"pods", "secrets"}, Verbs: []string{"get", "list"}}}},
		{"names are not joined with all", nil, rules{rule("", "pods", "get"), named(rule("", "pods", "get"), "a"), named(rule("", "pods", "get"), "b")},
			rules{rule("", "pods", "get"), named(rule("", "pods", "get"), "a", "b")}},
		{"a URL by its prefix", rules{url("/metrics/*")}, rules{url("/metrics/x")}, nil},
		{"another URL", rules{url("/metrics/*")}, rules{url("/healthz")}, rules{url("/healthz")}},
		{"no URL by all resources", everything[:1], rules{url("/healthz")}, rules{url("/healthz")}},
		{"everything by everything", everything, append(rules{url("/healthz"), rule("", "pods", "get")}, everything...), nil},
		{"a rule without verbs grants nothing", nil, rules{rule("", "pods")}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := uncovered(test.held, test.wanted)
			if !ok || !equality.Semantic.DeepEqual(got, test.want) {
				t.Errorf("got %v %v, want %v", got, ok, test.want)
			}
		})
	}
}

// A manifest of some kilobytes must not cost the agent its memory.
func TestUncoveredIsBounded(t *testing.T) {
	t.Parallel()
	words := make([]string, 2000)
	for i := range words {
		words[i] = fmt.Sprint("w", i)
	}
	huge := []rbacv1.PolicyRule{{APIGroups: words, Resources: words, ResourceNames: words, Verbs: words}}
	if missing, ok := uncovered([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}, huge); ok || missing != nil {
		t.Errorf("got %d rules, %v", len(missing), ok)
	}
	if missing, ok := uncovered(everything, huge); !ok || missing != nil {
		t.Errorf("who holds everything holds that: got %d rules, %v", len(missing), ok)
	}
}
