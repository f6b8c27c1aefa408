package access

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unique"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

func clusterRole(name string) rbac.Key { return rbac.Key{Kind: rbac.KindClusterRole, Name: name} }

func rules(verb, group, resource string, names ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}}
}

// bind adds a binding of a ClusterRole. The subject is a group with the prefix "group:",
// or a user.
func (u *Update) bind(namespace, name, role, subject string) {
	key := rbac.Key{Kind: rbac.KindRoleBinding, Namespace: namespace, Name: name}
	if namespace == "" {
		key.Kind = rbac.KindClusterRoleBinding
	}
	s := rbacv1.Subject{Kind: rbacv1.UserKind, Name: subject}
	if group, ok := strings.CutPrefix(subject, "group:"); ok {
		s = rbacv1.Subject{Kind: rbacv1.GroupKind, Name: group}
	}
	u.Bindings[key] = Binding{RoleRef: rbacv1.RoleRef{Kind: rbac.KindClusterRole, Name: role}, Subjects: []rbacv1.Subject{s}}
}

func newUpdate() *Update { return NewUpdate(true) }

func newIndex(t *testing.T, clusters map[string]*Update) *Index {
	t.Helper()
	x := New()
	for name, u := range clusters {
		x.Update(name, u)
		x.SetState(name, State{Known: true})
	}
	return x
}

var deleteSecrets = Attributes{Verb: "delete", Resource: "secrets", Namespace: "prod"}

// TestEscalations checks where each way leads to the permission, and where it does not.
func TestEscalations(t *testing.T) {
	const account = "system:serviceaccount:ops:cleaner"
	const rbacGroup = rbacv1.GroupName
	for _, c := range []struct {
		name      string
		namespace string
		rules     []rbacv1.PolicyRule
		want      EscalationKind
	}{
		{"bind everywhere", "", rules("bind", rbacGroup, "clusterroles"), Bind},
		{"bind in the namespace", "prod", rules("bind", rbacGroup, "clusterroles"), Bind},
		{"bind in another namespace", "ops", rules("bind", rbacGroup, "clusterroles"), ""},
		{"bind a role that allows it", "prod", rules("bind", rbacGroup, "clusterroles", "cleaner"), Bind},
		{"bind a role that does not", "prod", rules("bind", rbacGroup, "clusterroles", "harmless"), ""},
		{"escalate", "prod", rules("escalate", rbacGroup, "roles"), Escalate},
		{"escalate in another namespace", "ops", rules("escalate", rbacGroup, "roles"), ""},
		{"impersonate all users", "", rules("impersonate", "", "users"), ImpersonateUsers},
		{"impersonate in a namespace", "prod", rules("impersonate", "", "users"), ""},
		{"impersonate the user", "", rules("impersonate", "", "users", account), ImpersonateUsers},
		{"impersonate another user", "", rules("impersonate", "", "users", "carol"), ""},
		{"impersonate the group", "", rules("impersonate", "", "groups", "cleaners"), ImpersonateGroups},
		{"impersonate the ServiceAccount", "ops", rules("impersonate", "", "serviceaccounts"), ImpersonateAccounts},
		{"impersonate by name", "ops", rules("impersonate", "", "serviceaccounts", "cleaner"), ImpersonateAccounts},
		{"impersonate another ServiceAccount", "ops", rules("impersonate", "", "serviceaccounts", "default"), ""},
		{"Pods in the namespace of the ServiceAccount", "ops", rules("create", "", "pods"), CreatePods},
		{"Pods everywhere", "", rules("*", "*", "*", "x"), CreatePods},
		{"Pods in the namespace of the Secrets", "prod", rules("create", "", "pods"), ""},
		{"Deployments in the namespace of the ServiceAccount", "ops", rules("create", "apps", "deployments"), CreatePods},
		{"reading Pods", "ops", rules("get", "", "pods"), ""},
		{"exec", "ops", rules("create", "", "pods/exec"), ExecPods},
		{"token", "ops", rules("create", "", "serviceaccounts/token"), CreateTokens},
		{"token by name", "ops", rules("create", "", "serviceaccounts/token", "cleaner"), CreateTokens},
		{"token of another", "ops", rules("create", "", "serviceaccounts/token", "default"), ""},
		{"tokens in Secrets", "ops", rules("list", "", "secrets"), ReadSecrets},
		{"Secrets elsewhere", "prod", rules("list", "", "secrets"), ""},
		{"nodes", "", rules("get", "", "nodes/proxy"), ProxyNodes},
		{"certificates", "", rules("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client"), ApproveCertificates},
		{"certificates of kubelets", "", rules("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUpdate()
			u.Roles[clusterRole("cleaner")] = rules("delete", "", "secrets")
			u.Roles[clusterRole("harmless")] = rules("get", "", "pods")
			u.bind("prod", "cleaner", "cleaner", account)
			u.bind("prod", "cleaners", "cleaner", "group:cleaners")
			// The other cluster has the way, but nothing that it leads to.
			other := newUpdate()
			for _, on := range []*Update{u, other} {
				on.Roles[clusterRole("way")] = c.rules
				on.bind(c.namespace, "way", "way", "mallory")
			}
			x := newIndex(t, map[string]*Update{"one": u, "other": other})
			var got []EscalationKind
			found := false
			for _, s := range x.WhoCan(Who{Attributes: deleteSecrets, Clusters: []string{"one"}, Escalations: true, Limit: 10, MaxGrants: 10}).Subjects {
				if s.Name != "mallory" {
					continue
				}
				found = true
				for _, e := range s.Escalations {
					if !slices.Contains(got, e.Kind) {
						got = append(got, e.Kind)
					}
					if len(e.Clusters) != 1 || e.Binding.Name != "way" || e.Role.Name != "way" {
						t.Errorf("escalation %s by %s on %v, want by binding way on one cluster", e.Kind, e.Binding, e.Clusters)
					}
				}
			}
			if found != (c.want != "") || c.want != "" && !slices.Contains(got, c.want) {
				t.Errorf("escalations of mallory = %v, want %q", got, c.want)
			}
		})
	}
}

// TestEscalationThroughGroups checks that a named ServiceAccount, user or group leads to a permission that it has through
// a group. test/differential compares all paths with a model.
func TestEscalationThroughGroups(t *testing.T) {
	account := []rbacv1.PolicyRule{rules("create", "", "serviceaccounts/token", "cleaner")[0], rules("impersonate", "", "serviceaccounts", "cleaner")[0]}
	for _, c := range []struct {
		// allowed is the group that may delete Secrets.
		allowed   string
		namespace string
		way       rbacv1.PolicyRule
		want      bool
	}{
		{"system:serviceaccounts:ops", "ops", account[0], true},
		{"system:serviceaccounts:ops", "ops", account[1], true},
		{"system:serviceaccounts:ops", "", account[0], true},
		{"system:serviceaccounts:ops", "prod", account[0], false},
		{"system:serviceaccounts:other", "ops", account[1], false},
		{"system:serviceaccounts", "ops", account[0], true},
		{"system:serviceaccounts", "", account[1], true},
		{"system:authenticated", "ops", account[0], true},
		{"system:authenticated", "ops", account[1], true},
		{"system:authenticated", "ops", rules("create", "", "pods")[0], true},
		{"system:authenticated", "", rules("impersonate", "", "users", "carol")[0], true},
		{"system:authenticated", "", rules("impersonate", "", "users", "system:anonymous")[0], false},
		{"system:unauthenticated", "", rules("impersonate", "", "users", "system:anonymous")[0], true},
		{"system:unauthenticated", "ops", account[0], false},
		{"system:serviceaccounts:*", "ops", account[0], false},
		{"devs", "", rules("impersonate", "", "groups", "devs")[0], true},
		{"devs", "", rules("impersonate", "", "groups", "ops")[0], false},
		{"nobody", "", rules("impersonate", "", "groups", "system:masters")[0], true},
		{"nobody", "", rules("impersonate:user-info", "authentication.k8s.io", "groups", "system:masters")[0], false},
		{"devs", "", rules("impersonate", "authentication.k8s.io", "userextras/scopes")[0], false},
	} {
		u := newUpdate()
		u.Roles[clusterRole("cleaner")] = rules("delete", "", "secrets")
		u.bind("prod", "cleaners", "cleaner", "group:"+c.allowed)
		u.Roles[clusterRole("way")] = []rbacv1.PolicyRule{c.way}
		u.bind(c.namespace, "way", "way", "mallory")
		x := newIndex(t, map[string]*Update{"one": u})
		subjects := x.WhoCan(Who{Attributes: deleteSecrets, Clusters: []string{"one"}, Escalations: true, Limit: 10, MaxGrants: 10}).Subjects
		if got := slices.ContainsFunc(subjects, func(s SubjectAnswer) bool { return s.Name == "mallory" && len(s.Escalations) == 1 }); got != c.want {
			t.Errorf("group %s is allowed, mallory has %s in namespace %q: found %t, want %t", c.allowed, rbac.RuleText(c.way), c.namespace, got, c.want)
		}
	}
}

// TestEscalationByMount checks that a Pod leads to the Secrets and ConfigMaps of its namespace, whichever ServiceAccount
// may read them.
func TestEscalationByMount(t *testing.T) {
	for _, c := range []struct {
		verb, group, resource, asked string
		way                          rbacv1.PolicyRule
		bound                        string
		want                         bool
	}{
		{"get", "", "secrets", "prod", rules("patch", "apps", "deployments")[0], "prod", true},
		{"get", "", "secrets", "prod", rules("create", "", "pods")[0], "prod", true},
		{"get", "", "secrets", "prod", rules("create", "", "pods")[0], "", true},
		{"get", "", "configmaps", "prod", rules("update", "batch", "cronjobs")[0], "prod", true},
		{"get", "", "secrets", "prod", rules("patch", "apps", "deployments")[0], "ops", false},
		{"get", "", "secrets", "prod", rules("get", "", "pods/log")[0], "prod", false},
		// Only a binding in the whole cluster leads to all namespaces.
		{"get", "", "secrets", "", rules("create", "", "pods")[0], "prod", false},
		{"get", "", "secrets", "", rules("create", "", "pods")[0], "", true},
		// A mount needs the name of the Secret, and changes nothing.
		{"list", "", "secrets", "prod", rules("create", "", "pods")[0], "prod", false},
		{"delete", "", "secrets", "prod", rules("create", "", "pods")[0], "prod", false},
		{"get", "example.com", "secrets", "prod", rules("create", "", "pods")[0], "prod", false},
		{"get", "", "pods", "prod", rules("create", "", "pods")[0], "prod", false},
	} {
		u := newUpdate()
		u.Roles[clusterRole("way")] = []rbacv1.PolicyRule{c.way}
		u.bind(c.bound, "way", "way", "mallory")
		x := newIndex(t, map[string]*Update{"one": u})
		asked := Attributes{Verb: c.verb, Group: c.group, Resource: c.resource, Namespace: c.asked}
		subjects := x.WhoCan(Who{Attributes: asked, Clusters: []string{"one"}, Escalations: true, Limit: 10, MaxGrants: 10}).Subjects
		if got := slices.ContainsFunc(subjects, func(s SubjectAnswer) bool {
			return s.Name == "mallory" && len(s.Escalations) == 1 && s.Escalations[0].Kind == CreatePods
		}); got != c.want {
			t.Errorf("%s %s.%s in namespace %q: mallory has %s in namespace %q: found %t, want %t", c.verb, c.resource, c.group, c.asked, rbac.RuleText(c.way), c.bound, got, c.want)
		}
	}
}

// TestMissingRole checks that a denial names a bound role that does not exist on the cluster.
func TestMissingRole(t *testing.T) {
	with, without, elsewhere := newUpdate(), newUpdate(), newUpdate()
	with.Roles[clusterRole("operator")] = rules("delete", "", "secrets")
	for _, u := range []*Update{with, without} {
		u.bind("prod", "operators", "operator", "paul")
		u.Roles[clusterRole("viewer")] = rules("get", "", "pods")
		u.bind("prod", "viewers", "viewer", "paul")
	}
	elsewhere.bind("ops", "operators", "operator", "paul")
	x := newIndex(t, map[string]*Update{"elsewhere": elsewhere, "with": with, "without": without})
	clusters := []string{"elsewhere", "with", "without"}
	for i, want := range []Answer{
		{Decision: Denied, Reason: reasonDenied},
		{Decision: Allowed},
		{Decision: Denied, Reason: reasonDenied + `; ClusterRole "operator" is bound to it, but does not exist on the cluster`},
	} {
		if got := x.CanI(Subject{User: "paul"}, deleteSecrets, clusters, 10)[i]; got.Decision != want.Decision || got.Reason != want.Reason {
			t.Errorf("CanI(paul) on %s = %s (%q), want %s (%q)", clusters[i], got.Decision, got.Reason, want.Decision, want.Reason)
		}
	}
	// Another binding may allow the request although a role is missing.
	if got := x.CanI(Subject{User: "paul"}, Attributes{Verb: "get", Resource: "pods", Namespace: "prod"}, clusters, 10)[2]; got.Decision != Allowed || got.Reason != "" {
		t.Errorf("CanI(paul, get pods) = %s (%q), want Allowed", got.Decision, got.Reason)
	}
	x.SetState("without", State{Known: true, OtherAuthorizers: true})
	if got := x.CanI(Subject{User: "paul"}, deleteSecrets, clusters, 10)[2]; got.Decision != Unknown || got.Reason != reasonOther {
		t.Errorf("CanI(paul) with another authorizer = %s (%q), want Unknown", got.Decision, got.Reason)
	}
}

// TestEscalationStaysOnItsCluster checks that what leads to a permission on one cluster is
// no way on another.
func TestEscalationStaysOnItsCluster(t *testing.T) {
	one, two := newUpdate(), newUpdate()
	one.Roles[clusterRole("cleaner")] = rules("delete", "", "secrets")
	one.bind("", "cleaner", "cleaner", "system:serviceaccount:ops:cleaner")
	for _, u := range []*Update{one, two} {
		u.Roles[clusterRole("pods")] = rules("create", "", "pods")
		u.bind("ops", "pods", "pods", "mallory")
	}
	x := newIndex(t, map[string]*Update{"one": one, "two": two})
	for _, s := range x.WhoCan(Who{Attributes: deleteSecrets, Clusters: []string{"one", "two"}, Escalations: true, Limit: 10, MaxGrants: 10}).Subjects {
		for _, e := range s.Escalations {
			if s.Name != "mallory" || !slices.Equal(e.Clusters, []string{"one"}) {
				t.Errorf("escalation of %s on %v, want one of mallory on [one]", s.Name, e.Clusters)
			}
		}
		if s.Name == "mallory" && len(s.Grants)+len(s.Escalations) != 1 {
			t.Errorf("mallory: %d grants and %d escalations, want 0 and 1", len(s.Grants), len(s.Escalations))
		}
	}
}

// TestStates checks the answers where roles do not decide.
func TestStates(t *testing.T) {
	u := newUpdate()
	u.Roles[clusterRole("cleaner")] = rules("delete", "", "secrets")
	u.bind("", "cleaner", "cleaner", "alice")
	x := newIndex(t, map[string]*Update{"known": u, "stale": u, "webhook": u})
	x.SetState("stale", State{Reason: "the agent is not connected"})
	x.SetState("webhook", State{Known: true, OtherAuthorizers: true})
	clusters := []string{"known", "stale", "webhook", "never"}
	for _, c := range []struct {
		subject Subject
		want    []Decision
	}{
		{Subject{User: "alice"}, []Decision{Allowed, Unknown, Allowed, Unknown}},
		{Subject{User: "bob"}, []Decision{Denied, Unknown, Unknown, Unknown}},
		{Subject{User: "root", Groups: []string{"system:masters"}}, []Decision{Allowed, Unknown, Allowed, Unknown}},
		{Subject{User: "system:node:n", Groups: []string{"system:nodes"}}, []Decision{Unknown, Unknown, Unknown, Unknown}},
		{Subject{User: "system:node:n"}, []Decision{Denied, Unknown, Unknown, Unknown}},
	} {
		var got []Decision
		for _, answer := range x.CanI(c.subject, deleteSecrets, clusters, 1) {
			got = append(got, answer.Decision)
			if len(answer.Chains) == 0 && answer.Reason == "" {
				t.Errorf("CanI(%v) on %s = %s without chain or reason", c.subject, answer.Cluster, answer.Decision)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("CanI(%v) = %v, want %v", c.subject, got, c.want)
		}
	}
	who := x.WhoCan(Who{Attributes: deleteSecrets, Clusters: clusters, Limit: 10, MaxGrants: 10})
	var got []string
	for _, s := range who.Subjects {
		got = append(got, fmt.Sprintf("%s %d %t", s.Name, len(s.Grants), s.Reason != ""))
	}
	if want := []string{"alice 1 false", "system:masters 0 true"}; !slices.Equal(got, want) || len(who.Unknown) != 2 || !slices.Equal(who.OtherAuthorizers, []string{"webhook"}) {
		t.Errorf("WhoCan = %v with %d unknown clusters and other authorizers on %v, want %v with 2 and [webhook]", got, len(who.Unknown), who.OtherAuthorizers, want)
	}
	holdings, more := x.Holdings(Subject{User: "alice"}, clusters, 10)
	if more != 0 || len(holdings[0].Holdings) != 1 || holdings[1].Known || len(holdings[2].Holdings) != 1 || holdings[0].Holdings[0] != holdings[2].Holdings[0] {
		t.Errorf("Holdings(alice) = %+v and %d more, want one shared holding on known and webhook", holdings, more)
	}
}

func TestSubjectFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		groups []string
		want   []string
	}{
		{"alice", []string{"devs"}, []string{"devs", "system:authenticated"}},
		{"system:anonymous", nil, []string{"system:unauthenticated"}},
		{"system:serviceaccount:ns:a", nil, []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:ns"}},
	} {
		if got := SubjectFor(c.name, c.groups); got.User != c.name || !slices.Equal(got.Groups, c.want) {
			t.Errorf("SubjectFor(%s, %v) = %v, want groups %v", c.name, c.groups, got, c.want)
		}
	}
}

// TestAllNames checks that "*" stands for all namespaces and names.
func TestAllNames(t *testing.T) {
	u := newUpdate()
	u.Roles[clusterRole("one")] = rules("get", "", "secrets", "a")
	u.Roles[clusterRole("all")] = rules("get", "", "secrets")
	u.bind("", "one", "one", "alice")
	u.bind("", "all", "all", "bob")
	u.bind("prod", "all", "all", "carol")
	x := newIndex(t, map[string]*Update{"c": u})
	for _, c := range []struct {
		user, namespace, name string
		want                  Decision
	}{
		{"alice", "prod", "a", Allowed},
		{"alice", "prod", "*", Denied},
		{"alice", "*", "a", Allowed},
		{"bob", "*", "*", Allowed},
		{"carol", "prod", "*", Allowed},
		{"carol", "*", "*", Denied},
	} {
		a := Attributes{Verb: "get", Resource: "secrets", Namespace: c.namespace, Name: c.name}
		if got := x.CanI(Subject{User: c.user}, a, []string{"c"}, 1)[0].Decision; got != c.want {
			t.Errorf("CanI(%s, namespace %q, name %q) = %s, want %s", c.user, c.namespace, c.name, got, c.want)
		}
	}
}

// TestUpdateIsAtomic replaces the role and the binding of alice again and again: a reader that sees only a part of an
// update would find her denied.
func TestUpdateIsAtomic(t *testing.T) {
	states := make([]*Update, 2)
	for i := range states {
		role := fmt.Sprintf("cleaner-%d", i)
		states[i] = newUpdate()
		states[i].Roles[clusterRole(role)] = rules("delete", "", "secrets")
		states[i].bind("", "cleaner", role, "alice")
	}
	x := newIndex(t, map[string]*Update{"one": states[0]})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 2000 {
			x.Update("one", states[i%2])
		}
	}()
	for asked := 0; ; asked++ {
		if got := x.CanI(Subject{User: "alice"}, deleteSecrets, []string{"one"}, 1)[0]; got.Decision != Allowed {
			t.Errorf("question %d: alice is %s (%s), want Allowed", asked, got.Decision, got.Reason)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestBindingsOfAChangedRole checks that a changed role costs only the bindings that refer to it, and never more than the bindings
// of its cluster.
func TestBindingsOfAChangedRole(t *testing.T) {
	hub, other := newUpdate(), newUpdate()
	for i := range 1000 {
		hub.bind(fmt.Sprint("ns", i), "b", "view", "alice")
	}
	hub.bind("x", "b", "own", "bob")
	for i := range 2000 {
		other.bind(fmt.Sprint("other", i), "b", "own", "alice")
	}
	x := newIndex(t, map[string]*Update{"hub": hub})
	read := func() int {
		d := x.changesOf(x.clusters["hub"])
		d.nodes[x.records.nodes[nodeKey{noString, unique.Make("own")}]] = true
		return len(d.candidates())
	}
	if got := read(); got != 1 {
		t.Errorf("bindings that a change of a role with one binding reads = %d, want 1", got)
	}
	x.Update("other", other)
	if got := read(); got != 1001 {
		t.Errorf("bindings that a change of a role with many bindings on another cluster reads = %d, want the 1001 of its cluster", got)
	}
	interests := changesOf(x)
	_, alice := interests.Subscribe(SubjectFor("alice", nil).Subjects())
	_, bob := interests.Subscribe(SubjectFor("bob", nil).Subjects())
	change := NewUpdate(false)
	change.Roles[clusterRole("own")] = rules("get", "", "pods")
	x.Update("hub", change)
	if len(bob) != 1 || len(alice) != 0 {
		t.Errorf("notifications of a change of the role of bob: %d of bob and %d of alice, want 1 and 0", len(bob), len(alice))
	}
}
