package rbac

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/test/seed"
)

func TestAllows(t *testing.T) {
	t.Parallel()
	resources := func(verb, group, resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
	}
	url := func(verb, url string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: []string{url}}
	}
	pod, log := Request{Verb: "get", Resource: "pods", Name: "a"}, Request{Verb: "get", Resource: "pods/log", Name: "a"}
	metrics := Request{Verb: "get", NonResource: true, Path: "/metrics/slow"}
	for name, test := range map[string]struct {
		request Request
		rules   []rbacv1.PolicyRule
		want    int
	}{
		"no rules":                       {pod, nil, -1},
		"the second rule":                {pod, []rbacv1.PolicyRule{resources("list", "", "pods"), resources("get", "", "pods")}, 1},
		"any verb, group and resource":   {pod, []rbacv1.PolicyRule{resources("*", "*", "*")}, 0},
		"another group":                  {pod, []rbacv1.PolicyRule{resources("get", "apps", "pods")}, -1},
		"the name":                       {pod, []rbacv1.PolicyRule{resources("get", "", "pods", "b", "a")}, 0},
		"another name":                   {pod, []rbacv1.PolicyRule{resources("get", "", "pods", "b", "*")}, -1},
		"all names":                      {Request{Verb: "get", Resource: "pods"}, []rbacv1.PolicyRule{resources("get", "", "pods", "a")}, -1},
		"a rule for a subresource":       {pod, []rbacv1.PolicyRule{resources("get", "", "pods/log"), resources("get", "", "*/log")}, -1},
		"a subresource":                  {log, []rbacv1.PolicyRule{resources("get", "", "pods"), resources("get", "", "pods/*"), resources("get", "", "pods/log")}, 2},
		"a subresource of all resources": {log, []rbacv1.PolicyRule{resources("get", "", "*/exec"), resources("get", "", "*/log")}, 1},
		"the URL":                        {metrics, []rbacv1.PolicyRule{url("get", "/metrics"), url("get", "/metrics/slow")}, 1},
		"URLs with a prefix":             {metrics, []rbacv1.PolicyRule{url("get", "/met*/slow"), url("*", "/met*")}, 1},
		"any resource, for a URL":        {metrics, []rbacv1.PolicyRule{resources("*", "*", "*")}, -1},
		"any URL, for a resource":        {pod, []rbacv1.PolicyRule{url("*", "*")}, -1},
	} {
		rules := NewRuleSet(test.rules)
		if got := rules.Allows(&test.request); got != test.want {
			t.Errorf("%s: Allows(%+v) = %d, want %d", name, test.request, got, test.want)
		}
		marks := MarksOf(test.rules)
		if asked := test.request.Marks(); test.want >= 0 && !marks.MayAllow(&asked) {
			t.Errorf("%s: MayAllow(%+v) = false, want true because the rules allow it", name, test.request)
		}
	}
}

// TestNames compares Names with Allows for random rules.
func TestNames(t *testing.T) {
	t.Parallel()
	r := seed.Rand(t)
	verbs, groups, resources, names := []string{"get", "list", "*"}, []string{"", "apps", "*"}, []string{"pods", "nodes", "pods/log", "*"}, []string{"a", "b", "c"}
	some := func(list []string, least int) (picked []string) {
		for range least + r.IntN(3) {
			picked = append(picked, list[r.IntN(len(list))])
		}
		return picked
	}
	for range 2000 {
		var rules []rbacv1.PolicyRule
		for range r.IntN(4) {
			rules = append(rules, rbacv1.PolicyRule{Verbs: some(verbs, 1), APIGroups: some(groups, 0), Resources: some(resources, 0), ResourceNames: some(names, 0)})
		}
		set := NewRuleSet(rules)
		q := Request{Verb: "list", Group: groups[r.IntN(2)], Resource: resources[r.IntN(2)]}
		all, found := set.Names(q.Verb, q.Group, q.Resource)
		if want := set.Allows(&q) >= 0; all != want {
			t.Fatalf("Names(%+v) of %v = all %t, want %t", q, rules, all, want)
		}
		for _, q.Name = range names {
			if got, want := all || slices.Contains(found, q.Name), set.Allows(&q) >= 0; got != want {
				t.Fatalf("Names(%+v) of %v = %v, contains %s: %t, want %t", q, rules, found, q.Name, got, want)
			}
		}
		if !slices.IsSorted(found) {
			t.Fatalf("Names(%+v) = %v, want a sorted list", q, found)
		}
	}
}

func TestFingerprintOf(t *testing.T) {
	t.Parallel()
	seen := map[Fingerprint]rbacv1.PolicyRule{}
	for _, rule := range []rbacv1.PolicyRule{
		{}, {Verbs: []string{""}}, {Verbs: []string{"get"}}, {APIGroups: []string{"get"}}, {Resources: []string{"get"}}, {ResourceNames: []string{"get"}},
		{NonResourceURLs: []string{"get"}}, {Verbs: []string{"g", "et"}}, {Verbs: []string{"ge", "t"}}, {Verbs: []string{"get"}, APIGroups: []string{""}},
	} {
		f := FingerprintOf([]rbacv1.PolicyRule{rule})
		if other, known := seen[f]; known {
			t.Errorf("FingerprintOf(%v) = FingerprintOf(%v), want another", rule, other)
		}
		seen[f] = rule
		if f != FingerprintOf([]rbacv1.PolicyRule{*rule.DeepCopy()}) {
			t.Errorf("FingerprintOf(copy of %v) differs, want the same", rule)
		}
	}
}
