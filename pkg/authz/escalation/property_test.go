package escalation

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

// source draws from few values, so that equal values are frequent.
type source struct{ *rand.Rand }

func pick[T any](r source, from ...T) T { return from[r.Intn(len(from))] }

func some(r source, from ...string) []string {
	var all []string
	for range 1 + r.Intn(2) {
		all = append(all, pick(r, from...))
	}
	return all
}

func several[T any](r source, one func() T) *[]T {
	var all []T
	for range r.Intn(3) {
		all = append(all, one())
	}
	return &all
}

func (r source) rules(urls bool) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range 1 + r.Intn(2) {
		if urls && r.Intn(5) == 0 {
			rules = append(rules, rbacv1.PolicyRule{NonResourceURLs: some(r, "/a", "/a/*", "*"), Verbs: some(r, "get", "*")})
			continue
		}
		rule := rbacv1.PolicyRule{APIGroups: some(r, "", "apps", "*"), Resources: some(r, "pods", "pods/scale", "*/scale", "*"), Verbs: some(r, "get", "list", "*")}
		if r.Intn(3) == 0 {
			rule.ResourceNames = some(r, "x", "y")
		}
		rules = append(rules, rule)
	}
	return rules
}

func (r source) place() (string, *metav1.LabelSelector) {
	if r.Intn(3) == 0 {
		return "", &metav1.LabelSelector{MatchLabels: map[string]string{"env": pick(r, "dev", "prod")}}
	}
	return pick(r, "a", "b"), nil
}

func (r source) subject() *rbacv1.Subject {
	return pick(r, &rbacv1.Subject{Kind: "User", Name: "bob"}, &rbacv1.Subject{Kind: "User", Name: "alice"}, &rbacv1.Subject{Kind: "Group", Name: "team"})
}

func (r source) roleName() string { return pick(r, cpName, "reader", "there") }

func (r source) spec() *rbacv1alpha1.ClusterPermissionSpec {
	s := &rbacv1alpha1.ClusterPermissionSpec{}
	if r.Intn(2) == 0 {
		s.ClusterRole = &rbacv1alpha1.ClusterRole{Rules: r.rules(true)}
	}
	s.Roles = several(r, func() rbacv1alpha1.Role {
		namespace, selector := r.place()
		return rbacv1alpha1.Role{Namespace: namespace, NamespaceSelector: selector, Rules: r.rules(false)}
	})
	s.ClusterRoleBindings = several(r, func() rbacv1alpha1.ClusterRoleBinding {
		b := rbacv1alpha1.ClusterRoleBinding{Subject: r.subject()}
		if r.Intn(2) == 0 {
			b.RoleRef = &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.roleName()}
		}
		return b
	})
	s.RoleBindings = several(r, func() rbacv1alpha1.RoleBinding {
		namespace, selector := r.place()
		ref := rbacv1alpha1.RoleRef{Kind: pick(r, "Role", "ClusterRole")}
		if r.Intn(2) == 0 {
			ref.APIGroup, ref.Name = new(rbacv1.GroupName), new(r.roleName())
		}
		return rbacv1alpha1.RoleBinding{Namespace: namespace, NamespaceSelector: selector, RoleRef: ref, Subject: r.subject()}
	})
	s.RoleRefs = several(r, func() rbacv1alpha1.HubRoleRef {
		if r.Intn(2) == 0 {
			return rbacv1alpha1.HubRoleRef{Kind: "Role", Namespace: pick(r, "a", "b"), Name: r.roleName()}
		}
		return rbacv1alpha1.HubRoleRef{Kind: "ClusterRole", Name: r.roleName()}
	})
	return s
}

func (r source) manifest(t *testing.T, obj any) workv1.Manifest {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var m workv1.Manifest
	m.Raw = raw
	return m
}

func (r source) deliveredRole(t *testing.T) workv1.Manifest {
	kind := metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1"}
	if r.Intn(2) == 0 {
		kind.Kind = "ClusterRole"
		return r.manifest(t, &rbacv1.ClusterRole{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Name: r.roleName()}, Rules: r.rules(true)})
	}
	kind.Kind = "Role"
	return r.manifest(t, &rbacv1.Role{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, "a", "b"), Name: r.roleName()}, Rules: r.rules(false)})
}

func (r source) deliveredBinding(t *testing.T) workv1.Manifest {
	kind := metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1"}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: r.roleName()}
	subjects := []rbacv1.Subject{{Kind: "User", Name: "alice"}}
	if r.Intn(2) == 0 {
		kind.Kind = "ClusterRoleBinding"
		return r.manifest(t, &rbacv1.ClusterRoleBinding{TypeMeta: kind, RoleRef: ref, Subjects: subjects})
	}
	kind.Kind, ref.Kind = "RoleBinding", pick(r, "Role", "ClusterRole")
	return r.manifest(t, &rbacv1.RoleBinding{TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Namespace: pick(r, "a", "b")}, RoleRef: ref, Subjects: subjects})
}

// TestProperties checks properties of random specs and delivered manifests.
func TestProperties(t *testing.T) {
	everything := manifests(t, masterRole+bound("master", "{kind: User, name: alice}"))
	narrowed := 0
	r := source{rand.New(rand.NewSource(int64(seed.Of(t))))}
	for range 2000 {
		s, former := r.spec(), r.spec()
		var delivered []workv1.Manifest
		for range r.Intn(4) {
			delivered = append(delivered, r.deliveredRole(t))
		}
		for range r.Intn(4) {
			delivered = append(delivered, r.deliveredBinding(t))
		}
		describe := func() string {
			text, _ := json.MarshalIndent(map[string]any{"spec": s, "former": former, "delivered": delivered}, "", " ")
			return string(text)
		}

		h := &hub{}
		if refusal := check(t, alice, h, delivered, s, s.DeepCopy()); refusal != nil || len(h.asked) > 0 {
			t.Fatalf("Check(the same spec) = access reviews %q, missing grants %q, want none: %s", h.verbs(), missing(refusal), describe())
		}
		if refusal := check(t, alice, &hub{}, append(slices.Clone(delivered), everything...), s, former); refusal != nil {
			t.Fatalf("missing grants of a caller who holds everything = %q, want none: %s", missing(refusal), describe())
		}
		if refusal := check(t, alice, &hub{allowed: []string{"bind", "escalate"}}, nil, s, former); refusal != nil {
			t.Fatalf("missing grants of a caller with bind and escalate = %q, want none: %s", missing(refusal), describe())
		}
		if refusal := check(t, alice, &hub{}, nil, s, nil); (refusal == nil) == grantsAny(s) {
			t.Fatalf("missing grants of a caller who holds nothing = %q, want some: %t: %s", missing(refusal), grantsAny(s), describe())
		}

		less := atomsMissing(check(t, alice, &hub{}, append(slices.Clone(delivered), r.deliveredBinding(t)), s, former))
		more := atomsMissing(check(t, alice, &hub{}, delivered, s, former))
		for atom := range less {
			path, _, _ := strings.Cut(atom, " ")
			if !more[atom] && !more[path+" all"] {
				t.Fatalf("missing grants with one more binding contain %s, want a subset of the missing grants without it: %s", atom, describe())
			}
		}
		if len(less) < len(more) {
			narrowed++
		}
	}
	if narrowed == 0 {
		t.Error("number of bindings that reduced the missing grants = 0, want more than 0")
	}
}

// atomsMissing returns the atoms of a refusal. For a part with unknown rules, it contains "<path>
// all".
func atomsMissing(refusal *Refusal) map[string]bool {
	all := map[string]bool{}
	if refusal == nil {
		return all
	}
	for _, m := range refusal.Missing {
		if len(m.Rules) == 0 {
			all[m.Path+" all"] = true
		}
		for _, rule := range m.Rules {
			for _, atom := range validation.BreakdownRule(rule) {
				all[fmt.Sprintf("%s %v", m.Path, atom)] = true
			}
		}
	}
	return all
}
