package rbac

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/auth/rbac/validation"
)

func TestCompact(t *testing.T) {
	t.Parallel()
	type rules = []rbacv1.PolicyRule
	for name, test := range map[string]struct {
		rules, want rules
	}{
		"none":     {nil, nil},
		"verbs":    {rules{rule("", "pods", "list"), rule("", "pods", "get")}, rules{rule("", "pods", "get", "list")}},
		"repeated": {rules{rule("", "pods", "get"), rule("", "pods", "get")}, rules{rule("", "pods", "get")}},
		"groups": {rules{rule("apps", "*", "get"), rule("", "*", "get")},
			rules{{APIGroups: []string{"", "apps"}, Resources: []string{"*"}, Verbs: []string{"get"}}}},
		"verbs, then resources": {rules{rule("", "pods", "list", "get"), rule("", "secrets", "get", "list")},
			rules{{APIGroups: []string{""}, Resources: []string{"pods", "secrets"}, Verbs: []string{"get", "list"}}}},
		"names do not join all names": {rules{rule("", "pods", "get"), named(rule("", "pods", "get"), "b"), named(rule("", "pods", "get"), "a")},
			rules{rule("", "pods", "get"), named(rule("", "pods", "get"), "a", "b")}},
		"resources do not join URLs": {rules{rule("", "pods", "get"), url("/b"), url("/a")},
			rules{rule("", "pods", "get"), {NonResourceURLs: []string{"/a", "/b"}, Verbs: []string{"get"}}}},
		"two lists differ": {rules{rule("", "pods", "get"), rule("", "secrets", "list")}, rules{rule("", "pods", "get"), rule("", "secrets", "list")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Compact(test.rules); !equality.Semantic.DeepEqual(got, test.want) {
				t.Errorf("Compact(%v) = %v, want %v", test.rules, got, test.want)
			}
		})
	}
}

func TestCompactKeepsPermissions(t *testing.T) {
	t.Parallel()
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps"}, Resources: []string{"pods", "deployments"}, Verbs: []string{"list", "get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{"x", "y"}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"delete"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"x"}, Verbs: []string{"get"}},
		{NonResourceURLs: []string{"/a", "/b"}, Verbs: []string{"get", "post"}},
	}
	_, atoms := validation.Covers(nil, rules)
	compacted := Compact(atoms)
	if len(compacted) != len(rules) {
		t.Errorf("Compact(atoms) = %d rules %v, want %d rules", len(compacted), compacted, len(rules))
	}
	if covers, more := validation.Covers(rules, compacted); !covers {
		t.Errorf("rules that Compact(atoms) grants in addition to the atoms = %v, want none", more)
	}
	if covers, less := validation.Covers(compacted, rules); !covers {
		t.Errorf("rules of the atoms that Compact(atoms) lacks = %v, want none", less)
	}
}
