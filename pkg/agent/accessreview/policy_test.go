package accessreview

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

var (
	alice = types.NamespacedName{Namespace: "team", Name: "alice"}
	bob   = types.NamespacedName{Namespace: "team", Name: "bob"}
	carol = types.NamespacedName{Namespace: "other", Name: "carol"}
)

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}
}

func groupSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: name}
}

func accountSubject(account types.NamespacedName) rbacv1.Subject {
	return rbacv1.Subject{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}
}

func TestSubjectsOfBindings(t *testing.T) {
	for _, test := range []struct {
		name              string
		subject           rbacv1.Subject
		namespace         string
		alice, bob, carol bool
	}{
		{name: "ServiceAccount", subject: accountSubject(alice), alice: true},
		{name: "ServiceAccount of the namespace of the binding", subject: rbacv1.Subject{Kind: "ServiceAccount", Name: "carol"}, namespace: "other", carol: true},
		{name: "ServiceAccount of no namespace", subject: rbacv1.Subject{Kind: "ServiceAccount", Name: "alice"}},
		{name: "user of a ServiceAccount", subject: userSubject("system:serviceaccount:team:bob"), bob: true},
		{name: "user", subject: userSubject("alice")},
		{name: "user named like a ServiceAccount", subject: userSubject("system:serviceaccount:team")},
		{name: "user named *", subject: userSubject("*")},
		{name: "ServiceAccounts of a namespace", subject: groupSubject("system:serviceaccounts:team"), alice: true, bob: true},
		{name: "ServiceAccounts of no namespace", subject: groupSubject("system:serviceaccounts:")},
		{name: "all ServiceAccounts", subject: groupSubject("system:serviceaccounts"), alice: true, bob: true, carol: true},
		{name: "all authenticated users", subject: groupSubject("system:authenticated"), alice: true, bob: true, carol: true},
		{name: "all unauthenticated users", subject: groupSubject("system:unauthenticated")},
		{name: "administrators", subject: groupSubject("system:masters")},
		{name: "group named as a user", subject: groupSubject("system:serviceaccount:team:alice")},
		{name: "kind that does not exist", subject: rbacv1.Subject{Kind: "Robot", Name: "alice"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, role := newPolicy(), rbac.Key{Kind: rbac.KindClusterRole, Name: "r"}
			p.setRole(role, &ruleSet{rules: []rbacv1.PolicyRule{rule("get", "", "pods")}})
			e := p.setBinding(rbac.Key{Kind: rbac.KindRoleBinding, Namespace: test.namespace, Name: "b"},
				rbac.NewBinding(test.namespace, rbacv1.RoleRef{Kind: role.Kind, Name: role.Name}, []rbacv1.Subject{test.subject}))
			for account, want := range map[types.NamespacedName]bool{alice: test.alice, bob: test.bob, carol: test.carol} {
				if got := len(p.rules(account, test.namespace)) > 0; got != want {
					t.Errorf("a binding to %v includes %s: %t, want %t", test.subject, account, got, want)
				}
				if got := len(newEffect(e).on(account)) > 0; got != want {
					t.Errorf("an event of a binding to %v concerns %s: %t, want %t", test.subject, account, got, want)
				}
			}
		})
	}
}

func rule(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

func TestGrantOf(t *testing.T) {
	get := Request{Verb: "get", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "team", Name: "web"}
	scale := Request{Verb: "update", Group: "apps", Resource: "deployments/scale", Namespace: "team", Name: "web"}
	create := Request{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "team"}
	for _, test := range []struct {
		name    string
		rules   []rbacv1.PolicyRule
		request Request
		want    bool
	}{
		{"no rules", nil, get, false},
		{"exact rule", []rbacv1.PolicyRule{rule("get", "apps", "deployments")}, get, true},
		{"another verb", []rbacv1.PolicyRule{rule("list", "apps", "deployments")}, get, false},
		{"another group", []rbacv1.PolicyRule{rule("get", "", "deployments")}, get, false},
		{"another resource", []rbacv1.PolicyRule{rule("get", "apps", "daemonsets")}, get, false},
		{"every verb", []rbacv1.PolicyRule{rule("*", "apps", "deployments")}, get, true},
		{"every group", []rbacv1.PolicyRule{rule("get", "*", "deployments")}, get, true},
		{"all resources", []rbacv1.PolicyRule{rule("get", "apps", "*")}, get, true},
		{"the name of the request", []rbacv1.PolicyRule{rule("get", "apps", "deployments", "db", "web")}, get, true},
		{"another name", []rbacv1.PolicyRule{rule("get", "apps", "deployments", "db")}, get, false},
		{"another name in one rule, all names in the next", []rbacv1.PolicyRule{rule("get", "apps", "deployments", "db"), rule("get", "apps", "deployments")}, get, true},
		{"two names in two rules", []rbacv1.PolicyRule{rule("get", "apps", "deployments", "db"), rule("get", "apps", "deployments", "web")}, get, true},
		{"a name for a request without one", []rbacv1.PolicyRule{rule("create", "apps", "deployments", "web")}, create, false},
		{"without names for a request without one", []rbacv1.PolicyRule{rule("create", "apps", "deployments")}, create, true},
		{"the subresource", []rbacv1.PolicyRule{rule("update", "apps", "deployments/scale")}, scale, true},
		{"that subresource of all", []rbacv1.PolicyRule{rule("update", "apps", "*/scale")}, scale, true},
		{"everything for a subresource", []rbacv1.PolicyRule{rule("update", "apps", "*")}, scale, true},
		{"the resource for its subresource", []rbacv1.PolicyRule{rule("update", "apps", "deployments")}, scale, false},
		{"another subresource of all", []rbacv1.PolicyRule{rule("update", "apps", "*/status")}, scale, false},
		{"a subresource of all for the resource", []rbacv1.PolicyRule{rule("get", "apps", "*/scale")}, get, false},
		{"no resource at all", []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"*"}}}, get, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := grantOf(test.rules, actionOf(test.request)).allows(test.request.Name); got != test.want {
				t.Errorf("allows(%+v) = %t, want %t", test.request, got, test.want)
			}
		})
	}
}

func TestEventConcerns(t *testing.T) {
	var (
		reader = &ruleSet{rules: []rbacv1.PolicyRule{rule("get", "", "configmaps")}}
		named  = &ruleSet{rules: []rbacv1.PolicyRule{rule("get", "", "configmaps", "a")}}
		writer = &ruleSet{rules: []rbacv1.PolicyRule{rule("get", "", "configmaps"), rule("create", "", "configmaps")}}
		empty  = &ruleSet{}

		clusterRole  = rbac.Key{Kind: rbac.KindClusterRole, Name: "reader"}
		role         = rbac.Key{Kind: rbac.KindRole, Namespace: "team", Name: "reader"}
		everywhere   = rbac.Key{Kind: rbac.KindClusterRoleBinding, Name: "all"}
		inTeam       = rbac.Key{Kind: rbac.KindRoleBinding, Namespace: "team", Name: "team"}
		toCluster    = rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}
		toRole       = rbacv1.RoleRef{Kind: "Role", Name: "reader"}
		getTeamA     = Request{Verb: "get", Resource: "configmaps", Namespace: "team", Name: "a"}
		getTeamB     = Request{Verb: "get", Resource: "configmaps", Namespace: "team", Name: "b"}
		getOther     = Request{Verb: "get", Resource: "configmaps", Namespace: "other", Name: "a"}
		createTeam   = Request{Verb: "create", Resource: "configmaps", Namespace: "team"}
		everything   = []Request{getTeamA, getTeamB, getOther, createTeam}
		everyAccount = []types.NamespacedName{alice, bob, carol}
	)
	type concern map[types.NamespacedName][]Request
	bound := func(p *policy, key rbac.Key, ref rbacv1.RoleRef, subjects ...rbacv1.Subject) event {
		return p.setBinding(key, rbac.NewBinding(key.Namespace, ref, subjects))
	}
	for _, test := range []struct {
		name  string
		given func(*policy)
		event func(*policy) event
		want  concern
		roles int
	}{
		{
			name:  "a binding is created",
			given: func(p *policy) { p.setRole(clusterRole, reader) },
			event: func(p *policy) event { return bound(p, everywhere, toCluster, accountSubject(alice)) },
			want:  concern{alice: {getTeamA, getTeamB, getOther}},
		},
		{
			name:  "a binding in a namespace is created",
			given: func(p *policy) { p.setRole(clusterRole, writer) },
			event: func(p *policy) event { return bound(p, inTeam, toCluster, accountSubject(alice)) },
			want:  concern{alice: {getTeamA, getTeamB, createTeam}},
		},
		{
			name:  "a binding to a Role is created, in addition to a ClusterRole of that name",
			given: func(p *policy) { p.setRole(clusterRole, writer); p.setRole(role, named) },
			event: func(p *policy) event { return bound(p, inTeam, toRole, accountSubject(alice)) },
			want:  concern{alice: {getTeamA}},
		},
		{
			name: "a binding is deleted",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				bound(p, everywhere, toCluster, groupSubject("system:serviceaccounts:team"))
			},
			event: func(p *policy) event { return p.setBinding(everywhere, nil) },
			want:  concern{alice: {getTeamA, getTeamB, getOther}, bob: {getTeamA, getTeamB, getOther}},
		},
		{
			name:  "an unknown binding is deleted",
			given: func(p *policy) { p.setRole(clusterRole, reader) },
			event: func(p *policy) event { return p.setBinding(everywhere, nil) },
		},
		{
			name:  "a binding to a missing role is created",
			given: func(*policy) {},
			event: func(p *policy) event { return bound(p, everywhere, toCluster, accountSubject(alice)) },
		},
		{
			name: "bindings of users only",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				bound(p, inTeam, toCluster, userSubject("dave"))
			},
			event: func(p *policy) event {
				e := bound(p, everywhere, toCluster, userSubject("dave"), groupSubject("system:masters"))
				e.add(p.setRole(clusterRole, writer))
				if len(e.changes) != 0 {
					t.Errorf("the event has %d changes, want 0", len(e.changes))
				}
				return e
			},
			roles: 1,
		},
		{
			name:  "the role of a binding is created later",
			given: func(p *policy) { bound(p, everywhere, toCluster, accountSubject(alice)) },
			event: func(p *policy) event { return p.setRole(clusterRole, named) },
			want:  concern{alice: {getTeamA, getOther}}, roles: 1,
		},
		{
			name: "subjects are edited",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				bound(p, everywhere, toCluster, accountSubject(alice), accountSubject(bob))
			},
			event: func(p *policy) event {
				return bound(p, everywhere, toCluster, accountSubject(carol), accountSubject(bob))
			},
			want: concern{alice: {getTeamA, getTeamB, getOther}, carol: {getTeamA, getTeamB, getOther}},
		},
		{
			name: "subjects are reordered, and users added",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				bound(p, everywhere, toCluster, accountSubject(alice), accountSubject(bob))
			},
			event: func(p *policy) event {
				return bound(p, everywhere, toCluster, accountSubject(bob), userSubject("dave"), accountSubject(alice))
			},
		},
		{
			name: "a group is replaced by one of its accounts",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				bound(p, everywhere, toCluster, groupSubject("system:authenticated"))
			},
			event: func(p *policy) event { return bound(p, everywhere, toCluster, accountSubject(alice)) },
			want:  concern{bob: {getTeamA, getTeamB, getOther}, carol: {getTeamA, getTeamB, getOther}},
		},
		{
			name: "the role reference differs after a relist",
			given: func(p *policy) {
				p.setRole(clusterRole, writer)
				p.setRole(role, reader)
				bound(p, inTeam, toCluster, accountSubject(alice))
			},
			event: func(p *policy) event { return bound(p, inTeam, toRole, accountSubject(alice)) },
			want:  concern{alice: {createTeam}},
		},
		{
			name: "rules are edited",
			given: func(p *policy) {
				p.setRole(clusterRole, named)
				bound(p, inTeam, toCluster, groupSubject("system:serviceaccounts"))
			},
			event: func(p *policy) event { return p.setRole(clusterRole, reader) },
			want:  concern{alice: {getTeamB}, bob: {getTeamB}, carol: {getTeamB}}, roles: 1,
		},
		{
			name: "a role is deleted",
			given: func(p *policy) {
				p.setRole(role, writer)
				bound(p, inTeam, toRole, accountSubject(carol))
			},
			event: func(p *policy) event { return p.setRole(role, nil) },
			want:  concern{carol: {getTeamA, getTeamB, createTeam}}, roles: 1,
		},
		{
			name: "a role is written again without a change",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				bound(p, everywhere, toCluster, accountSubject(alice))
			},
			event: func(p *policy) event {
				return p.setRole(clusterRole, &ruleSet{rules: []rbacv1.PolicyRule{rule("get", "", "configmaps")}})
			},
		},
		{
			name:  "a role without rules is created",
			given: func(p *policy) { bound(p, everywhere, toCluster, accountSubject(alice)) },
			event: func(p *policy) event { return p.setRole(clusterRole, empty) },
			roles: 1,
		},
		{
			name: "an unbound role is deleted",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				p.setRole(role, reader)
				bound(p, inTeam, toRole, accountSubject(alice))
			},
			event: func(p *policy) event { return p.setRole(clusterRole, nil) },
			roles: 1,
		},
		{
			name: "a relist without changes",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				p.setRole(role, writer)
				bound(p, everywhere, toCluster, accountSubject(alice))
			},
			event: func(p *policy) event {
				e := p.replace(rbac.KindClusterRole, []rbac.Object{{Key: clusterRole, Rules: []rbacv1.PolicyRule{rule("get", "", "configmaps")}}})
				e.add(p.replace(rbac.KindClusterRoleBinding, []rbac.Object{{Key: everywhere, RoleRef: toCluster, Subjects: []rbacv1.Subject{accountSubject(alice)}}}))
				return e
			},
		},
		{
			name: "a relist of ClusterRoleBindings keeps RoleBindings",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				bound(p, everywhere, toCluster, accountSubject(alice))
				bound(p, inTeam, toCluster, accountSubject(bob))
			},
			event: func(p *policy) event { return p.replace(rbac.KindClusterRoleBinding, nil) },
			want:  concern{alice: {getTeamA, getTeamB, getOther}},
		},
		{
			name: "a relist of Roles keeps ClusterRoles",
			given: func(p *policy) {
				p.setRole(clusterRole, reader)
				p.setRole(role, writer)
				bound(p, everywhere, toCluster, accountSubject(alice))
				bound(p, inTeam, toRole, accountSubject(bob))
			},
			event: func(p *policy) event { return p.replace(rbac.KindRole, nil) },
			want:  concern{bob: {getTeamA, getTeamB, createTeam}}, roles: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPolicy()
			test.given(p)
			e := newEffect(test.event(p))
			for _, account := range everyAccount {
				for _, request := range everything {
					want := false
					for _, w := range test.want[account] {
						want = want || w == request
					}
					if got := e.concerns(account, request); got != want {
						t.Errorf("concerns(%s, %+v) = %t, want %t", account, request, got, want)
					}
				}
			}
			if len(e.roles) != test.roles {
				t.Errorf("the event has roles %v, want %d roles", e.roles, test.roles)
			}
		})
	}
}

func TestRulesOfAnAccount(t *testing.T) {
	p := newPolicy()
	p.setRole(rbac.Key{Kind: rbac.KindClusterRole, Name: "everywhere"}, &ruleSet{rules: []rbacv1.PolicyRule{rule("get", "", "pods")}})
	p.setRole(rbac.Key{Kind: rbac.KindRole, Namespace: "team", Name: "here"}, &ruleSet{rules: []rbacv1.PolicyRule{rule("get", "", "secrets")}})
	for key, ref := range map[rbac.Key]rbacv1.RoleRef{
		{Kind: rbac.KindClusterRoleBinding, Name: "b"}:              {Kind: "ClusterRole", Name: "everywhere"},
		{Kind: rbac.KindRoleBinding, Namespace: "team", Name: "b"}:  {Kind: "Role", Name: "here"},
		{Kind: rbac.KindRoleBinding, Namespace: "other", Name: "b"}: {Kind: "ClusterRole", Name: "gone"},
	} {
		// A binding contributes its rules once, even if several subjects include the account.
		p.setBinding(key, rbac.NewBinding(key.Namespace, ref, []rbacv1.Subject{accountSubject(alice), groupSubject("system:serviceaccounts:team"), userSubject("x")}))
	}
	for namespace, want := range map[string]int{"": 1, "team": 2, "other": 1} {
		if got := p.rules(alice, namespace); len(got) != want {
			t.Errorf("rules(alice, %q) = %v, want %d rules", namespace, got, want)
		}
	}
	if got := p.rules(carol, "team"); len(got) != 0 {
		t.Errorf("rules(carol, team) = %v, want none", got)
	}
}
