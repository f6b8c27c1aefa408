package access

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

// model is a cluster as a list of objects, which a plain loop evaluates.
type model struct {
	state    State
	roles    map[rbac.Key][]rbacv1.PolicyRule
	bindings map[rbac.Key]Binding
}

func newModel() *model {
	return &model{roles: map[rbac.Key][]rbacv1.PolicyRule{}, bindings: map[rbac.Key]Binding{}}
}

func (m *model) apply(u *Update) {
	if u.Full {
		m.roles, m.bindings = map[rbac.Key][]rbacv1.PolicyRule{}, map[rbac.Key]Binding{}
	}
	for key, rules := range u.Roles {
		m.roles[key] = rules
	}
	for key, b := range u.Bindings {
		m.bindings[key] = b
	}
	for _, key := range u.DeletedRoles {
		delete(m.roles, key)
	}
	for _, key := range u.DeletedBindings {
		delete(m.bindings, key)
	}
}

// allows returns the bindings that allow a request of a subject.
func (m *model) allows(s Subject, a Attributes) []rbac.Key {
	var by []rbac.Key
	for key := range m.bindings {
		if key.Kind == rbac.KindRoleBinding && (a.NonResource || key.Namespace != a.Namespace) {
			continue
		}
		if slices.ContainsFunc(m.bound(key, s), func(rule rbacv1.PolicyRule) bool { return matches(rule, a) }) {
			by = append(by, key)
		}
	}
	slices.SortFunc(by, func(a, b rbac.Key) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return by
}

// roleBoundTo returns the role of a binding, and reports whether the binding contains a subject.
func roleBoundTo(key rbac.Key, b Binding, s Subject) (role rbac.Key, bound bool) {
	role = rbac.Key{Kind: b.RoleRef.Kind, Name: b.RoleRef.Name}
	if role.Kind == rbac.KindRole {
		role.Namespace = key.Namespace
	}
	return role, slices.ContainsFunc(b.Subjects, func(of rbacv1.Subject) bool {
		switch of.Kind {
		case rbacv1.UserKind:
			return of.Name == s.User
		case rbacv1.GroupKind:
			return slices.Contains(s.Groups, of.Name)
		}
		namespace := cmp.Or(of.Namespace, key.Namespace)
		return namespace != "" && s.User == "system:serviceaccount:"+namespace+":"+of.Name
	})
}

// bound returns the rules that a binding grants to a subject.
func (m *model) bound(key rbac.Key, s Subject) []rbacv1.PolicyRule {
	role, bound := roleBoundTo(key, m.bindings[key], s)
	if !bound {
		return nil
	}
	return m.roles[role]
}

// grants returns the namespaces and rules that bindings grant to a subject, as texts.
func (m *model) grants(s Subject) []string {
	if m == nil || !m.state.Known {
		return nil
	}
	var list []string
	for key := range m.bindings {
		if rules := m.bound(key, s); len(rules) > 0 {
			list = append(list, fmt.Sprint(key.Namespace, rules))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func matches(rule rbacv1.PolicyRule, a Attributes) bool {
	has := func(list []string, texts ...string) bool {
		return slices.ContainsFunc(list, func(word string) bool { return word == "*" || slices.Contains(texts, word) })
	}
	if !has(rule.Verbs, a.Verb) {
		return false
	}
	if a.NonResource {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			prefix := strings.TrimRight(url, "*")
			return url == a.Path || prefix != url && strings.HasPrefix(a.Path, prefix)
		})
	}
	resources := []string{a.Resource}
	if a.Subresource != "" {
		resources = []string{a.Resource + "/" + a.Subresource, "*/" + a.Subresource}
	}
	return has(rule.APIGroups, a.Group) && has(rule.Resources, resources...) && (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.Name))
}

var (
	someVerbs      = []string{"get", "list", "create", "*", "bind", "impersonate"}
	someGroups     = []string{"", "apps", "rbac.authorization.k8s.io", "*"}
	someResources  = []string{"pods", "pods/log", "*/log", "secrets", "clusterroles", "users", "serviceaccounts/token", "*"}
	someNames      = []string{"a", "b", "view", "alice"}
	somePaths      = []string{"/healthz", "/metrics/*", "/metrics*", "*", "/"}
	someNamespaces = []string{"x", "y", "z"}
	someUsers      = []string{"alice", "bob", "system:serviceaccount:x:a", "system:serviceaccount:y:b"}
	someGroupsOf   = []string{"devs", "ops", "system:serviceaccounts:x", "system:authenticated"}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

func some(r *rand.Rand, list []string, most int) []string {
	var picked []string
	for range r.IntN(most + 1) {
		picked = append(picked, pick(r, list))
	}
	return picked
}

func randomRules(r *rand.Rand) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range r.IntN(4) {
		if r.IntN(5) == 0 {
			rules = append(rules, rbacv1.PolicyRule{Verbs: some(r, someVerbs, 2), NonResourceURLs: some(r, somePaths, 2)})
			continue
		}
		rules = append(rules, rbacv1.PolicyRule{
			Verbs: some(r, someVerbs, 3), APIGroups: some(r, someGroups, 2), Resources: some(r, someResources, 3), ResourceNames: some(r, someNames, max(0, r.IntN(4)-1)),
		})
	}
	return rules
}

func randomRoleKey(r *rand.Rand) rbac.Key {
	if r.IntN(2) == 0 {
		return rbac.Key{Kind: rbac.KindClusterRole, Name: pick(r, someNames)}
	}
	return rbac.Key{Kind: rbac.KindRole, Namespace: pick(r, someNamespaces), Name: pick(r, someNames)}
}

func randomBinding(r *rand.Rand) (rbac.Key, Binding) {
	key := rbac.Key{Kind: rbac.KindClusterRoleBinding, Name: fmt.Sprint(r.IntN(5))}
	b := Binding{RoleRef: rbacv1.RoleRef{Kind: rbac.KindClusterRole, Name: pick(r, someNames)}}
	if r.IntN(3) > 0 {
		key.Kind, key.Namespace = rbac.KindRoleBinding, pick(r, someNamespaces)
		b.RoleRef.Kind = pick(r, []string{rbac.KindRole, rbac.KindClusterRole})
	}
	for range r.IntN(4) {
		switch r.IntN(3) {
		case 0:
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: pick(r, someUsers)})
		case 1:
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: pick(r, someGroupsOf)})
		default:
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: pick(r, []string{"", "x", "y"}), Name: pick(r, someNames)})
		}
	}
	return key, b
}

func randomUpdate(r *rand.Rand, m *model) *Update {
	u := &Update{Full: r.IntN(6) == 0, Roles: map[rbac.Key][]rbacv1.PolicyRule{}, Bindings: map[rbac.Key]Binding{}}
	for range r.IntN(6) {
		u.Roles[randomRoleKey(r)] = randomRules(r)
		key, b := randomBinding(r)
		u.Bindings[key] = b
	}
	for key := range m.roles {
		if _, set := u.Roles[key]; !set && r.IntN(8) == 0 {
			u.DeletedRoles = append(u.DeletedRoles, key)
		}
	}
	for key := range m.bindings {
		if _, set := u.Bindings[key]; !set && r.IntN(8) == 0 {
			u.DeletedBindings = append(u.DeletedBindings, key)
		}
	}
	return u
}

func randomAttributes(r *rand.Rand) Attributes {
	if r.IntN(6) == 0 {
		return Attributes{Verb: pick(r, someVerbs), NonResource: true, Path: pick(r, []string{"/healthz", "/metrics/x", "/metricsx", "/"})}
	}
	resource, sub, _ := strings.Cut(pick(r, someResources), "/")
	return Attributes{
		Verb: pick(r, someVerbs), Group: pick(r, someGroups), Resource: resource, Subresource: sub,
		Namespace: pick(r, append(someNamespaces, "")), Name: pick(r, append(someNames, "")),
	}
}

// TestRandomFleet changes clusters at random and compares all answers with those of a
// plain loop.
func TestRandomFleet(t *testing.T) {
	r := seed.Rand(t)
	x := New()
	fleet := map[string]*model{}
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprintf("cluster%02d", i)
	}
	followers := newFollowers(x, names)
	common := randomUpdate(r, newModel())
	common.Full = true
	// concerned are the subjects of the change of a step.
	var concerned []rbac.Subject
	x.Follow(func(cluster string, _ bool, subjects []rbac.Subject) {
		// The follower may ask.
		x.Totals(cluster)
		concerned = append(concerned, subjects...)
	})
	for step := range 2000 {
		name := pick(r, names)
		m := fleet[name]
		if m == nil {
			m = newModel()
			fleet[name] = m
		}
		before := map[rbac.Subject][]string{}
		for key, s := range someSubjects() {
			before[key] = m.grants(s)
		}
		concerned = nil
		switch r.IntN(12) {
		case 0:
			m.state = State{Known: r.IntN(4) > 0, OtherAuthorizers: r.IntN(4) == 0}
			x.SetState(name, m.state)
		case 1:
			if r.IntN(3) == 0 {
				x.Remove(name)
				delete(fleet, name)
			}
		case 2, 3:
			x.Update(name, common)
			m.apply(common)
		default:
			u := randomUpdate(r, m)
			x.Update(name, u)
			m.apply(u)
		}
		a := randomAttributes(r)
		s := Subject{User: pick(r, someUsers), Groups: some(r, someGroupsOf, 2)}
		wantAnswers(t, x, fleet, names, s, a)
		for _, f := range followers {
			f.check(t, fleet)
		}
		wantGrants(t, x, fleet, names, s)
		for key, s := range someSubjects() {
			if now := fleet[name].grants(s); !slices.Equal(before[key], now) && !slices.Contains(concerned, key) {
				t.Errorf("subjects of a change on %s = %v, want %v, whose grants change from %v to %v", name, concerned, key, before[key], now)
			}
		}
		if step%20 == 0 {
			wantWho(t, x, fleet, names, a)
			wantTotals(t, x, fleet)
		}
		if t.Failed() {
			t.Fatalf("step %d: request %+v", step, a)
		}
	}
	for _, name := range names {
		x.Remove(name)
	}
	if left := &x.records; len(left.ruleSets)+len(left.sets)+len(left.bindings)+len(left.nodes)+len(left.subjects) != 0 {
		t.Errorf("after the removal of all clusters: %d rule sets, %d bindings, %d nodes, %d subjects are left, want none",
			len(left.ruleSets), len(left.bindings), len(left.nodes), len(left.subjects))
	}
}

func wantAnswers(t *testing.T, x *Index, fleet map[string]*model, names []string, s Subject, a Attributes) {
	t.Helper()
	for i, got := range x.CanI(s, a, names, 100) {
		want, by := Unknown, []rbac.Key(nil)
		if m := fleet[names[i]]; m != nil && m.state.Known {
			switch by = m.allows(s, a); {
			case len(by) > 0:
				want = Allowed
			case !m.state.OtherAuthorizers:
				want = Denied
			}
		}
		var gotBy []rbac.Key
		for _, c := range got.Chains {
			gotBy = append(gotBy, c.Binding)
			if !matches(c.Rule, a) {
				t.Errorf("chain of %s: rule %v does not allow the request", got.Cluster, c.Rule)
			}
		}
		if got.Cluster != names[i] || got.Decision != want || !slices.Equal(gotBy, by) || (got.Reason == "") != (want == Allowed) {
			t.Errorf("CanI(%v) on %s = %s by %v (%q), want %s by %v", s, got.Cluster, got.Decision, gotBy, got.Reason, want, by)
		}
	}
}

// someSubjects returns the subjects of random bindings.
func someSubjects() map[rbac.Subject]Subject {
	users := append(slices.Clone(someUsers), "system:serviceaccount:z:a", "system:serviceaccount:x:view", "system:serviceaccount:z:b")
	subjects := map[rbac.Subject]Subject{}
	for _, name := range users {
		subjects[rbac.Subject{Name: name}] = Subject{User: name}
	}
	for _, name := range someGroupsOf {
		subjects[rbac.Subject{Group: true, Name: name}] = Subject{Groups: []string{name}}
	}
	return subjects
}

func wantGrants(t *testing.T, x *Index, fleet map[string]*model, names []string, s Subject) {
	t.Helper()
	subjects := []rbac.Subject{{Name: s.User}}
	for _, group := range s.Groups {
		subjects = append(subjects, rbac.Subject{Group: true, Name: group})
	}
	got := map[string][]string{}
	unknown := x.Grants(subjects, names, func(namespace string, rules *rbac.RuleSet, clusters []string) {
		for _, cluster := range clusters {
			if len(rules.Rules) > 0 {
				got[cluster] = append(got[cluster], fmt.Sprint(namespace, rules.Rules))
			}
		}
	})
	for _, name := range names {
		slices.Sort(got[name])
		if want := fleet[name].grants(s); !slices.Equal(slices.Compact(got[name]), want) {
			t.Errorf("Grants(%v) on %s = %v, want %v", subjects, name, got[name], want)
		}
		if known := fleet[name] != nil && fleet[name].state.Known; slices.Contains(unknown, name) == known {
			t.Errorf("Grants() = %v, want %s unless it is known: %t", unknown, name, known)
		}
	}
}

// wantWho compares WhoCan with the answers of CanI for each subject.
func wantWho(t *testing.T, x *Index, fleet map[string]*model, names []string, a Attributes) {
	t.Helper()
	got := map[rbac.Subject]map[string]int{}
	var after *rbac.Subject
	for {
		page := x.WhoCan(Who{Attributes: a, Clusters: names, Limit: 2, After: after, MaxGrants: 1000})
		for _, s := range page.Subjects {
			if after != nil && compareSubjects(s.Subject, *after) <= 0 {
				t.Fatalf("WhoCan: %v follows %v", s.Subject, after)
			}
			after = &s.Subject
			got[s.Subject] = map[string]int{}
			for _, g := range s.Grants {
				for _, cluster := range g.Clusters {
					got[s.Subject][cluster]++
				}
			}
		}
		if page.Remaining == 0 {
			if len(page.Subjects) > 0 && len(got) != page.Total {
				t.Errorf("WhoCan: %d subjects on all pages, want %d", len(got), page.Total)
			}
			break
		}
	}
	for key, s := range someSubjects() {
		for _, cluster := range names {
			want := 0
			if m := fleet[cluster]; m != nil && m.state.Known {
				want = len(m.allows(s, a))
			}
			if got[key][cluster] != want {
				t.Errorf("WhoCan: %v has %d grants on %s, want %d", key, got[key][cluster], cluster, want)
			}
		}
	}
}

func wantTotals(t *testing.T, x *Index, fleet map[string]*model) {
	t.Helper()
	for name, m := range fleet {
		if roles, bindings := x.Totals(name); roles != len(m.roles) || bindings != len(m.bindings) {
			t.Errorf("Totals(%s) = %d, %d, want %d, %d", name, roles, bindings, len(m.roles), len(m.bindings))
		}
	}
}
