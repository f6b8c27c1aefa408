package executor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
)

func TestMessageOfShortfall(t *testing.T) {
	t.Parallel()
	executor := types.NamespacedName{Namespace: "shop", Name: "deployer"}
	web := work.Target{Resource: deployments, Namespace: "web", Name: "front"}
	request := func(verb, name string) access.Request {
		return access.Request{Verb: verb, Group: "apps", Version: "v1", Resource: "deployments", Namespace: "web", Name: name}
	}
	secrets := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
	role := &grant{namespace: "web", requests: []access.Request{{Verb: "escalate", Group: rbacv1.GroupName, Resource: "roles", Namespace: "web"}}}
	binding := &grant{namespace: "web", ref: &rbacv1.RoleRef{Kind: "Role", Name: "r"},
		requests: []access.Request{{Verb: "bind", Group: rbacv1.GroupName, Resource: "roles", Namespace: "web", Name: "r"}}}
	clusterBinding := &grant{ref: &rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"},
		requests: []access.Request{{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "admin"}}}
	const begin = "not allowed to apply the resource apps deployments, web front: "

	for _, test := range []struct {
		name      string
		shortfall shortfall
		want      string
	}{
		{"one verb", shortfall{target: web, requests: []access.Request{request("get", "front")}},
			begin + `the executor shop/deployer may not get deployments.apps "front" in namespace "web"; it takes a Role in namespace "web", bound to it, with the rule {apiGroups: [apps], resources: [deployments], resourceNames: [front], verbs: [get]}`},
		{"one rule for all verbs with a name, one for those without", shortfall{target: web, requests: []access.Request{request("create", ""), request("update", "front"), request("delete", "front")}},
			begin + `the executor shop/deployer may not create, update, delete deployments.apps "front" in namespace "web"; it takes a Role in namespace "web", bound to it, with the rules {apiGroups: [apps], resources: [deployments], verbs: [create]} and {apiGroups: [apps], resources: [deployments], resourceNames: [front], verbs: [update, delete]}`},
		{"what the cluster says about it, once", shortfall{target: web, requests: []access.Request{request("get", "front")}, reasons: []string{"", "no", "", "no"}},
			begin + `the executor shop/deployer may not get deployments.apps "front" in namespace "web" (no); it takes a Role in namespace "web", bound to it, with the rule {apiGroups: [apps], resources: [deployments], resourceNames: [front], verbs: [get]}`},
		{"a cluster-scoped object", shortfall{target: work.Target{Resource: namespaces, Name: "web"}, requests: []access.Request{{Verb: "get", Resource: "namespaces", Namespace: "web", Name: "web"}}},
			`not allowed to apply the resource  namespaces,  web: the executor shop/deployer may not get namespaces "web"; it takes a ClusterRole, bound to it by a ClusterRoleBinding, with the rule {apiGroups: [""], resources: [namespaces], resourceNames: [web], verbs: [get]}`},
		{"a role", shortfall{target: web, grant: &grantShortfall{grant: role, rules: secrets}},
			begin + `the executor shop/deployer does not hold what the role grants: {apiGroups: [""], resources: [secrets], verbs: [get]}; it takes these, or a Role in namespace "web", bound to it, with the rule {apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}`},
		{"a binding", shortfall{target: web, grant: &grantShortfall{grant: binding, rules: secrets}},
			begin + `the executor shop/deployer does not hold what the Role "r" in namespace "web" grants: {apiGroups: [""], resources: [secrets], verbs: [get]}; it takes these, or a Role in namespace "web", bound to it, with the rule {apiGroups: [rbac.authorization.k8s.io], resources: [roles], resourceNames: [r], verbs: [bind]}`},
		{"a role that does not exist", shortfall{target: web, grant: &grantShortfall{grant: clusterBinding, unknown: true}},
			begin + `the executor shop/deployer may not bind the ClusterRole "admin", which does not exist; it takes a ClusterRole, bound to it by a ClusterRoleBinding, with the rule {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [admin], verbs: [bind]}`},
		{"a role that is too large", shortfall{target: web, grant: &grantShortfall{grant: clusterBinding, tooMany: true}},
			begin + `the ClusterRole "admin" has too many rules to find out whether the executor shop/deployer holds them; it takes a ClusterRole, bound to it by a ClusterRoleBinding, with the rule {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [admin], verbs: [bind]}`},
		{"several at once", shortfall{target: web, requests: []access.Request{request("get", "front")}, unreadable: errors.New("what it grants cannot be read")},
			begin + `the executor shop/deployer may not get deployments.apps "front" in namespace "web"; it takes a Role in namespace "web", bound to it, with the rule {apiGroups: [apps], resources: [deployments], resourceNames: [front], verbs: [get]}; what it grants cannot be read`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.shortfall.message(executor); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A rule of a message is pasted into a role as it is.
func TestRuleTextIsYAML(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "a", "true", "no", "null", "1", "1.5", "1e3", "2020-01-01", "~", "*", "*/scale", "a:b", "a-", "x, y", `"`, "ü", "a#b", "-", "/healthz", "/metrics/*", "pods/log", "a.b.c", "0x1f"} {
		rule := rbacv1.PolicyRule{APIGroups: []string{word}, Resources: []string{word, "b"}, ResourceNames: []string{word}, NonResourceURLs: []string{word}, Verbs: []string{word}}
		text := ruleText(rule)
		var read rbacv1.PolicyRule
		if err := yaml.UnmarshalStrict([]byte(text), &read); err != nil {
			t.Errorf("%q: %s: %v", word, text, err)
		} else if !equality.Semantic.DeepEqual(read, rule) {
			t.Errorf("%q: %s is read as %+v", word, text, read)
		}
	}
}

func TestRulesTextIsBounded(t *testing.T) {
	t.Parallel()
	var rules []rbacv1.PolicyRule
	for i := range 50 {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{fmt.Sprint("r", i)}, Verbs: []string{"get"}})
	}
	if got := rulesText(rules); !strings.HasSuffix(got, " and 45 more") || strings.Count(got, "{") != 5 {
		t.Errorf("got %s", got)
	}
	rules[0].ResourceNames = []string{strings.Repeat("ä", 100_000)}
	if got := rulesText(rules); len(got) > maxRulesBytes+20 || !strings.HasSuffix(got, "... and 49 more") {
		t.Errorf("got %d bytes", len(got))
	}
}

func TestMessageIsBounded(t *testing.T) {
	t.Parallel()
	ref := &rbacv1.RoleRef{Kind: "ClusterRole", Name: strings.Repeat("r", 400_000)}
	s := shortfall{target: work.Target{Resource: deployments, Name: "front"}, grant: &grantShortfall{unknown: true, grant: &grant{
		ref: ref, requests: []access.Request{{Verb: "bind", Resource: "clusterroles", Name: ref.Name}}}}}
	// A condition of the hub takes 32768 bytes.
	if got := len(s.message(types.NamespacedName{Namespace: "shop", Name: "deployer"})); got > 32_000 {
		t.Errorf("the message has %d bytes", got)
	}
}
