package executor

import (
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

func TestMessageOfShortfall(t *testing.T) {
	t.Parallel()
	executor := types.NamespacedName{Namespace: "shop", Name: "deployer"}
	web := work.Target{Resource: deployments, Namespace: "web", Name: "front"}
	request := func(verb, name string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Verb: verb, Group: "apps", Version: "v1", Resource: "deployments", Namespace: "web", Name: name}
	}
	secrets := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
	role := &grant{namespace: "web", key: rbac.Key{Kind: "Role", Namespace: "web", Name: "r"}, requests: []authorizationv1.ResourceAttributes{{Verb: "escalate", Group: rbacv1.GroupName, Resource: "roles", Namespace: "web"}}}
	binding := &grant{namespace: "web", key: rbac.Key{Kind: "Role", Namespace: "web", Name: "r"}, ref: &rbacv1.RoleRef{Kind: "Role", Name: "r"},
		requests: []authorizationv1.ResourceAttributes{{Verb: "bind", Group: rbacv1.GroupName, Resource: "roles", Namespace: "web", Name: "r"}}}
	clusterBinding := &grant{key: rbac.Key{Kind: "ClusterRole", Name: "admin"}, ref: &rbacv1.RoleRef{Kind: "ClusterRole", Name: "admin"},
		requests: []authorizationv1.ResourceAttributes{{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "admin"}}}
	const begin = "not allowed to apply the resource apps deployments, web front: "

	for _, test := range []struct {
		name      string
		shortfall shortfall
		want      string
	}{
		{"one verb", shortfall{target: web, requests: []authorizationv1.ResourceAttributes{request("get", "front")}},
			begin + `the executor shop/deployer cannot get deployments.apps "front" in namespace "web"; grant it with a Role in namespace "web" that contains the rule {apiGroups: [apps], resources: [deployments], resourceNames: [front], verbs: [get]}`},
		{"one rule for all verbs with a name, one for verbs without a name", shortfall{target: web, requests: []authorizationv1.ResourceAttributes{request("create", ""), request("update", "front"), request("delete", "front")}},
			begin + `the executor shop/deployer cannot create, update, delete deployments.apps "front" in namespace "web"; grant it with a Role in namespace "web" that contains the rules {apiGroups: [apps], resources: [deployments], verbs: [create]} and {apiGroups: [apps], resources: [deployments], resourceNames: [front], verbs: [update, delete]}`},
		{"duplicate reasons of the cluster", shortfall{target: web, requests: []authorizationv1.ResourceAttributes{request("get", "front")}, reasons: []string{"", "no", "", "no"}},
			begin + `the executor shop/deployer cannot get deployments.apps "front" in namespace "web" (no); grant it with a Role in namespace "web" that contains the rule {apiGroups: [apps], resources: [deployments], resourceNames: [front], verbs: [get]}`},
		{"a cluster-scoped object", shortfall{target: work.Target{Resource: namespaces, Name: "web"}, requests: []authorizationv1.ResourceAttributes{{Verb: "get", Resource: "namespaces", Namespace: "web", Name: "web"}}},
			`not allowed to apply the resource  namespaces,  web: the executor shop/deployer cannot get namespaces "web"; grant it with a ClusterRole, bound by a ClusterRoleBinding, that contains the rule {apiGroups: [""], resources: [namespaces], resourceNames: [web], verbs: [get]}`},
		{"a role", shortfall{target: web, grant: &grantShortfall{grant: role, rules: secrets}},
			begin + `the executor shop/deployer does not hold the permissions that the role grants: {apiGroups: [""], resources: [secrets], verbs: [get]}; grant these, or a Role in namespace "web" that contains the rule {apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [escalate]}`},
		{"a binding", shortfall{target: web, grant: &grantShortfall{grant: binding, rules: secrets}},
			begin + `the executor shop/deployer does not hold the permissions that Role "r" in namespace "web" grants: {apiGroups: [""], resources: [secrets], verbs: [get]}; grant these, or a Role in namespace "web" that contains the rule {apiGroups: [rbac.authorization.k8s.io], resources: [roles], resourceNames: [r], verbs: [bind]}`},
		{"a role that does not exist", shortfall{target: web, grant: &grantShortfall{grant: clusterBinding, unknown: true}},
			begin + `the executor shop/deployer cannot bind ClusterRole "admin", which does not exist; grant it with a ClusterRole, bound by a ClusterRoleBinding, that contains the rule {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [admin], verbs: [bind]}`},
		{"a role that is too large", shortfall{target: web, grant: &grantShortfall{grant: clusterBinding, tooMany: true}},
			begin + `ClusterRole "admin" has too many rules to compare with the permissions of the executor shop/deployer; grant it with a ClusterRole, bound by a ClusterRoleBinding, that contains the rule {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [admin], verbs: [bind]}`},
		{"several causes", shortfall{target: web, requests: []authorizationv1.ResourceAttributes{request("get", "front")}, unreadable: errors.New("the rules or references cannot be read")},
			begin + `the executor shop/deployer cannot get deployments.apps "front" in namespace "web"; grant it with a Role in namespace "web" that contains the rule {apiGroups: [apps], resources: [deployments], resourceNames: [front], verbs: [get]}; the rules or references cannot be read`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := test.shortfall.message(executor); got != test.want {
				t.Errorf("message() = %s, want %s", got, test.want)
			}
		})
	}
}

func TestMessageIsBounded(t *testing.T) {
	t.Parallel()
	ref := &rbacv1.RoleRef{Kind: "ClusterRole", Name: strings.Repeat("r", 400_000)}
	s := shortfall{target: work.Target{Resource: deployments, Name: "front"}, grant: &grantShortfall{unknown: true, grant: &grant{
		ref: ref, key: rbac.Key{Kind: ref.Kind, Name: ref.Name}, requests: []authorizationv1.ResourceAttributes{{Verb: "bind", Resource: "clusterroles", Name: ref.Name}}}}}
	// The message of a condition has at most 32768 bytes.
	if got := len(s.message(types.NamespacedName{Namespace: "shop", Name: "deployer"})); got > 32_000 {
		t.Errorf("message() has %d bytes, want at most 32000", got)
	}
}
