package differential_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

const (
	escalationPolicies = 400
	// unknownName is a name in no rule and no binding. The model assumes that a role, user or group of that name is allowed
	// everything, because a rule without names also applies to those that are created later.
	unknownName = "unknown"
	mastersName = "system:masters"
)

var (
	escalationNamespaces = []string{"a", "b"}
	escalationSubjects   = []string{
		"user:alice", "user:bob", "user:system:anonymous", "user:system:serviceaccount:a:one", "user:system:serviceaccount:b:two",
		"group:devs", "group:system:authenticated", "group:system:unauthenticated", "group:system:serviceaccounts",
		"group:system:serviceaccounts:a", "group:system:serviceaccounts:elsewhere", "group:system:serviceaccounts:*", "group:system:masters",
	}
	escalationNames = []string{
		"", "*", "one", "two", "alice", "carol", "devs", "system:anonymous", "system:masters", "system:authenticated", "system:unauthenticated", "system:serviceaccounts",
		"system:serviceaccounts:a", "system:serviceaccount:a:one", "system:serviceaccount:a:two", "kubernetes.io/*", "kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving",
	}
	escalationTargets = []access.Attributes{
		{Verb: "delete", Resource: "secrets", Namespace: "a"},
		{Verb: "delete", Resource: "secrets", Namespace: "b", Name: "one"},
		{Verb: "delete", Resource: "secrets"},
		{Verb: "get", Resource: "configmaps", Namespace: "a"},
		{Verb: "get", Resource: "secrets"},
		{Verb: "get", NonResource: true, Path: "/metrics"},
	}
)

// step is a request that is a part of an escalation path, and the result for its caller.
type step struct {
	kind                  access.EscalationKind
	verb, group, resource string
	namespace, name       string
	leads                 bool
}

// escalationModel decides by enumeration: it tries all requests that are escalation paths, for all names and namespaces.
type escalationModel struct {
	policy *access.Update
	target access.Attributes
	steps  []step
}

func matchesText(list []string, text string) bool {
	return slices.Contains(list, text) || slices.Contains(list, "*")
}

func ruleAllows(rule *rbacv1.PolicyRule, verb, group, resource, name string) bool {
	_, subresource, _ := strings.Cut(resource, "/")
	return matchesText(rule.Verbs, verb) && matchesText(rule.APIGroups, group) &&
		(matchesText(rule.Resources, resource) || subresource != "" && slices.Contains(rule.Resources, "*/"+subresource)) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, name))
}

func (m *escalationModel) allowsTarget(rule *rbacv1.PolicyRule) bool {
	if m.target.NonResource {
		return matchesText(rule.Verbs, m.target.Verb) && matchesText(rule.NonResourceURLs, m.target.Path)
	}
	return ruleAllows(rule, m.target.Verb, m.target.Group, m.target.Resource, m.target.Name)
}

func (m *escalationModel) roleAllowsTarget(key rbac.Key) bool {
	rules := m.policy.Roles[key]
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return m.allowsTarget(&rule) })
}

func boundRole(key rbac.Key, b access.Binding) rbac.Key {
	role := rbac.Key{Kind: b.RoleRef.Kind, Name: b.RoleRef.Name}
	if role.Kind == rbac.KindRole {
		role.Namespace = key.Namespace
	}
	return role
}

func subjectText(s rbacv1.Subject) string { return strings.ToLower(s.Kind) + ":" + s.Name }

// allowed decides the target for an identity: a user and its groups.
func (m *escalationModel) allowed(identity ...string) bool {
	for key, b := range m.policy.Bindings {
		if key.Namespace != "" && (m.target.NonResource || key.Namespace != m.target.Namespace) || !m.roleAllowsTarget(boundRole(key, b)) {
			continue
		}
		if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return slices.Contains(identity, subjectText(s)) }) {
			return true
		}
	}
	return false
}

func (m *escalationModel) accountAllowed(namespace, name string) bool {
	return m.allowed("user:system:serviceaccount:"+namespace+":"+name, "group:system:serviceaccounts", "group:system:serviceaccounts:"+namespace, "group:system:authenticated")
}

func (m *escalationModel) userAllowed(name string) bool {
	parts := strings.Split(name, ":")
	switch {
	case name == unknownName:
		return true
	case name == "system:anonymous":
		return m.allowed("user:"+name, "group:system:unauthenticated")
	case strings.HasPrefix(name, "system:serviceaccount:"):
		return m.accountAllowed(parts[2], parts[3])
	}
	return m.allowed("user:"+name, "group:system:authenticated")
}

// addPods adds the steps that create Pods in a namespace, or in all namespaces if it is empty. accounts is true if one of the
// ServiceAccounts is allowed.
func (m *escalationModel) addPods(namespace string, names []string, accounts bool) {
	// A Pod mounts Secrets and ConfigMaps of its namespace.
	mounts := m.target.Verb == "get" && (m.target.Resource == "secrets" || m.target.Resource == "configmaps") && m.target.Namespace == namespace
	add := func(verb, group, resource, name string) {
		m.steps = append(m.steps, step{access.CreatePods, verb, group, resource, namespace, name, accounts || mounts})
	}
	for _, name := range names {
		add("create", "", "pods", name)
		add("create", "batch", "jobs", name)
		for _, verb := range []string{"create", "update", "patch"} {
			add(verb, "", "replicationcontrollers", name)
			add(verb, "batch", "cronjobs", name)
			for _, resource := range []string{"deployments", "daemonsets", "replicasets", "statefulsets"} {
				add(verb, "apps", resource, name)
			}
		}
	}
}

// enumerate computes all steps.
func (m *escalationModel) enumerate() {
	m.steps = nil
	add := func(kind access.EscalationKind, verb, group, resource, namespace, name string, leads bool) {
		m.steps = append(m.steps, step{kind: kind, verb: verb, group: group, resource: resource, namespace: namespace, name: name, leads: leads})
	}
	names := append([]string{unknownName}, escalationNames...)
	inNamespace := ""
	if !m.target.NonResource {
		inNamespace = m.target.Namespace
	}
	anywhere := false
	for _, namespace := range []string{"a", "b", "elsewhere"} {
		some := false
		for _, name := range names {
			leads := m.accountAllowed(namespace, name)
			some = some || leads
			add(access.ImpersonateAccounts, "impersonate", "", "serviceaccounts", namespace, name, leads)
			add(access.ImpersonateAccounts, "impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts", namespace, name, leads)
			add(access.CreateTokens, "create", "", "serviceaccounts/token", namespace, name, leads)
		}
		m.addPods(namespace, names, some)
		for _, name := range names {
			for _, resource := range []string{"pods/exec", "pods/attach"} {
				add(access.ExecPods, "create", "", resource, namespace, name, some)
				add(access.ExecPods, "get", "", resource, namespace, name, some)
			}
			add(access.ExecPods, "update", "", "pods/ephemeralcontainers", namespace, name, some)
			add(access.ExecPods, "patch", "", "pods/ephemeralcontainers", namespace, name, some)
			for _, verb := range []string{"get", "list", "watch"} {
				add(access.ReadSecrets, verb, "", "secrets", namespace, name, some)
			}
		}
		anywhere = anywhere || some
	}
	m.addPods("", names, anywhere)
	for _, name := range names {
		add(access.ProxyNodes, "get", "", "nodes/proxy", "", name, anywhere)
		add(access.ProxyNodes, "create", "", "nodes/proxy", "", name, anywhere)
		add(access.ApproveCertificates, "approve", "certificates.k8s.io", "signers", "", name, name == "kubernetes.io/*" || name == "kubernetes.io/kube-apiserver-client")
		add(access.Escalate, "escalate", rbacv1.GroupName, "clusterroles", "", name, true)
		clusterRole := name == unknownName || m.roleAllowsTarget(rbac.Key{Kind: rbac.KindClusterRole, Name: name})
		add(access.Bind, "bind", rbacv1.GroupName, "clusterroles", "", name, clusterRole)
		if inNamespace != "" {
			role := name == unknownName || m.roleAllowsTarget(rbac.Key{Kind: rbac.KindRole, Namespace: inNamespace, Name: name})
			add(access.Escalate, "escalate", rbacv1.GroupName, "roles", inNamespace, name, true)
			add(access.Bind, "bind", rbacv1.GroupName, "roles", inNamespace, name, role)
			add(access.Bind, "bind", rbacv1.GroupName, "clusterroles", inNamespace, name, clusterRole)
		}
		user, group := m.userAllowed(name), name == unknownName || m.allowed("group:"+name)
		add(access.ImpersonateUsers, "impersonate", "", "users", "", name, user)
		add(access.ImpersonateUsers, "impersonate:user-info", "authentication.k8s.io", "users", "", name, user)
		add(access.ImpersonateGroups, "impersonate", "", "groups", "", name, group || name == mastersName)
		// API servers refuse this verb for system:masters.
		add(access.ImpersonateGroups, "impersonate:user-info", "authentication.k8s.io", "groups", "", name, group)
	}
}

// paths returns all escalation paths as text.
func (m *escalationModel) paths() map[string]bool {
	m.enumerate()
	found := map[string]bool{}
	for key, b := range m.policy.Bindings {
		role := boundRole(key, b)
		for i := range m.policy.Roles[role] {
			rule := &m.policy.Roles[role][i]
			for _, s := range m.steps {
				if !s.leads || key.Namespace != "" && key.Namespace != s.namespace || !ruleAllows(rule, s.verb, s.group, s.resource, s.name) {
					continue
				}
				for _, of := range b.Subjects {
					found[pathText(s.kind, subjectText(of), key, role, *rule)] = true
				}
			}
		}
	}
	return found
}

func pathText(kind access.EscalationKind, subject string, binding, role rbac.Key, rule rbacv1.PolicyRule) string {
	return fmt.Sprintf("%s: %s by %s to %s: %s", kind, subject, binding, role, rbac.RuleText(rule))
}

// escalationRule returns a rule that allows the target, is a part of an escalation path, or neither.
func escalationRule(r *rand.Rand) rbacv1.PolicyRule {
	rule := anyOf(r, []rbacv1.PolicyRule{
		{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"secrets"}},
		{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"secrets"}},
		{Verbs: []string{"get", "*"}, NonResourceURLs: []string{"/metrics"}},
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}},
		{Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}},
		{Verbs: []string{"escalate", "bind"}, APIGroups: []string{"*"}, Resources: []string{"roles"}},
		{Verbs: []string{"escalate"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}},
		{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"}},
		{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"groups"}},
		{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users", "groups", "serviceaccounts"}},
		{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts"}},
		{Verbs: []string{"impersonate"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"userextras/scopes", "userextras", "uids", "users"}},
		{Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"users"}},
		{Verbs: []string{"impersonate:user-info"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"groups"}},
		{Verbs: []string{"impersonate:serviceaccount"}, APIGroups: []string{"authentication.k8s.io", ""}, Resources: []string{"serviceaccounts", "users"}},
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}},
		{Verbs: []string{"create"}, APIGroups: []string{"*"}, Resources: []string{"*/token"}},
		{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		{Verbs: []string{"patch"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods/exec", "pods"}},
		{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"secrets"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes/proxy", "nodes"}},
		{Verbs: []string{"approve"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
	})
	if len(rule.NonResourceURLs) == 0 && r.IntN(2) == 0 {
		rule.ResourceNames = anySome(r, escalationNames, 1, 2)
	}
	return rule
}

func escalationPolicy(r *rand.Rand) *access.Update {
	u := &access.Update{Full: true, Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]access.Binding{}}
	for _, name := range []string{"one", "two", "alice", "devs"} {
		for _, key := range []rbac.Key{{Kind: rbac.KindClusterRole, Name: name}, {Kind: rbac.KindRole, Namespace: anyOf(r, escalationNamespaces), Name: name}} {
			for range r.IntN(3) {
				u.Roles[key] = append(u.Roles[key], escalationRule(r))
			}
		}
	}
	for i := range 2 + r.IntN(6) {
		b := access.Binding{RoleRef: rbacv1.RoleRef{Kind: rbac.KindClusterRole, Name: anyOf(r, []string{"one", "two", "alice", "devs"})}}
		key := rbac.Key{Kind: rbac.KindClusterRoleBinding, Name: fmt.Sprint("binding-", i)}
		if r.IntN(3) > 0 {
			key.Kind, key.Namespace = rbac.KindRoleBinding, anyOf(r, escalationNamespaces)
			if r.IntN(2) == 0 {
				b.RoleRef.Kind = rbac.KindRole
			}
		}
		for _, subject := range slices.Compact(slices.Sorted(slices.Values(anySome(r, escalationSubjects, 1, 3)))) {
			kind, name, _ := strings.Cut(subject, ":")
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: map[string]string{"user": rbacv1.UserKind, "group": rbacv1.GroupKind}[kind], Name: name})
		}
		u.Bindings[key] = b
	}
	return u
}

// TestEscalationsMatchModel compares the escalation paths of the index with those that enumeration finds, for random RBAC
// of two clusters.
func TestEscalationsMatchModel(t *testing.T) {
	r := seed.Rand(t)
	counts := map[access.EscalationKind]int{}
	for i := range escalationPolicies {
		index := access.New()
		policies := map[string]*access.Update{"one": escalationPolicy(r), "two": escalationPolicy(r)}
		for cluster, policy := range policies {
			index.Update(cluster, policy)
			index.SetState(cluster, access.State{Known: true})
		}
		for _, target := range escalationTargets {
			got := map[string]map[string]bool{"one": {}, "two": {}}
			who := index.WhoCan(access.Who{Attributes: target, Clusters: []string{"one", "two"}, Escalations: true, Limit: 1000, MaxGrants: 1000})
			for _, s := range who.Subjects {
				for _, e := range s.Escalations {
					subject := "user:" + s.Name
					if s.Group {
						subject = "group:" + s.Name
					}
					for _, cluster := range e.Clusters {
						got[cluster][pathText(e.Kind, subject, e.Binding, e.Role, e.Rule)] = true
						counts[e.Kind]++
					}
				}
			}
			for cluster, policy := range policies {
				want := (&escalationModel{policy: policy, target: target}).paths()
				for path := range want {
					if !got[cluster][path] {
						t.Errorf("policy %d, %s on %s: missing %s", i, target.Verb+" "+target.Resource+target.Path+" in "+target.Namespace, cluster, path)
					}
				}
				for path := range got[cluster] {
					if !want[path] {
						t.Errorf("policy %d, %s on %s: not in the model: %s", i, target.Verb+" "+target.Resource+target.Path+" in "+target.Namespace, cluster, path)
					}
				}
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("paths of each kind: %v", counts)
	for _, kind := range []access.EscalationKind{
		access.Bind, access.Escalate, access.ImpersonateUsers, access.ImpersonateGroups, access.ImpersonateAccounts, access.CreatePods, access.ExecPods,
		access.CreateTokens, access.ReadSecrets, access.ProxyNodes, access.ApproveCertificates,
	} {
		if counts[kind] < escalationPolicies/10 {
			t.Errorf("%d paths of kind %s, want at least %d", counts[kind], kind, escalationPolicies/10)
		}
	}
}
