package clusterpermission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// defaultLimitBytes is the default limit of the server.
const defaultLimitBytes = 500 << 10

func permission(spec v1alpha1.ClusterPermissionSpec) *v1alpha1.ClusterPermission {
	return &v1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "cluster1", UID: testUID}, Spec: spec}
}

// allBut returns a selector of all namespaces of numbered except one.
func allBut(number int) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "number", Operator: metav1.LabelSelectorOpNotIn, Values: []string{fmt.Sprint(number)}},
	}}
}

// all returns a selector, different for each i, of all namespaces of numbered.
func all(i int) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: fmt.Sprintf("absent-%d", i), Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
}

// overlapping returns a ClusterPermission with roles that select the same namespaces. Each role has
// different rules.
func overlapping(roles, rules int) *v1alpha1.ClusterPermission {
	var out []v1alpha1.Role
	for i := range roles {
		role := v1alpha1.Role{NamespaceSelector: all(i)}
		for j := range rules {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{
				APIGroups: []string{"apps"}, Resources: []string{fmt.Sprintf("r%d-%d", i, j)}, Verbs: []string{"get"},
			})
		}
		out = append(out, role)
	}
	return permission(v1alpha1.ClusterPermissionSpec{Roles: &out})
}

func account(name string) *rbacv1.Subject {
	return &rbacv1.Subject{APIGroup: v1alpha1.ManagedServiceAccountGroup, Kind: v1alpha1.ManagedServiceAccountKind, Name: name}
}

// roles returns a ClusterPermission with one role with one rule for every namespace, and
// additional roles that repeat the rule.
func roles(count, rules int, selector func(i int) *metav1.LabelSelector) *v1alpha1.ClusterPermission {
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}
	repeated := slices.Repeat([]rbacv1.PolicyRule{rule}, rules)
	out := []v1alpha1.Role{{NamespaceSelector: &metav1.LabelSelector{}, Rules: repeated[:1]}}
	for i := range count {
		out = append(out, v1alpha1.Role{NamespaceSelector: selector(i), Rules: repeated})
	}
	return permission(v1alpha1.ClusterPermissionSpec{Roles: &out})
}

func isTooLarge(errs field.ErrorList) bool {
	return len(errs) == 1 && errs[0].Error() == fmt.Sprintf("spec: Too long: renders to more than %d bytes of manifests; use several ClusterPermissions", defaultLimitBytes)
}

// mustRender returns the objects of the rendered ManifestWork and checks their number.
func mustRender[T any](t *testing.T, cp *v1alpha1.ClusterPermission, in Inputs, count int) []T {
	t.Helper()
	result, errs := Render(cp, in)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if got := len(result.Work.Spec.Workload.Manifests); got != count {
		t.Fatalf("number of manifests = %d, want %d", got, count)
	}
	out := make([]T, count)
	for i, manifest := range result.Work.Spec.Workload.Manifests {
		if err := json.Unmarshal(manifest.Raw, &out[i]); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// A ManifestWork of exactly the maximum size is rendered.
func TestSizeLimit(t *testing.T) {
	for name, file := range caseFiles(t) {
		cp, in := load(t, file), loadInputs(t)
		unbounded, errs := Render(cp, in)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		if unbounded.Work == nil {
			continue
		}
		for _, manifest := range unbounded.Work.Spec.Workload.Manifests {
			in.SizeLimitBytes += int64(len(manifest.Raw))
		}
		if result, errs := Render(cp, in); len(errs) > 0 || asJSON(t, result) != asJSON(t, unbounded) {
			t.Errorf("%s: Render() with a limit of its size = %v, %v, want the result without limit", name, result, errs)
		}
		in.SizeLimitBytes--
		want := fmt.Sprintf("spec: Too long: renders to more than %d bytes of manifests; use several ClusterPermissions", in.SizeLimitBytes)
		if result, errs := Render(cp, in); result != nil || len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("%s: Render() with a limit one byte below its size = %v, %v, want %q", name, result, errs, want)
		}
	}
}

// Rendering must not take time or memory quadratic in the input. Otherwise a user who can
// create ClusterPermissions could stop the server.
func TestWorkIsBounded(t *testing.T) {
	alice := &rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}
	roleBindings := func(count int, one func(i int) v1alpha1.RoleBinding) *v1alpha1.ClusterPermission {
		var bindings []v1alpha1.RoleBinding
		for i := range count {
			bindings = append(bindings, one(i))
		}
		return permission(v1alpha1.ClusterPermissionSpec{RoleBindings: &bindings})
	}
	const tooLarge, tooLong = "renders to more than 512000 bytes of manifests", "takes too long to render"
	for name, test := range map[string]struct {
		cp         *v1alpha1.ClusterPermission
		namespaces int
		want       string
	}{
		"rules that are merged": {cp: overlapping(2, 20_000), namespaces: 50, want: tooLarge},
		"objects": {
			cp: roleBindings(10_000, func(i int) v1alpha1.RoleBinding {
				return v1alpha1.RoleBinding{Name: fmt.Sprint(i), NamespaceSelector: &metav1.LabelSelector{}, Subject: alice}
			}),
			namespaces: 10_000, want: tooLarge,
		},
		"bindings of missing accounts": {
			cp: roleBindings(10_000, func(i int) v1alpha1.RoleBinding {
				return v1alpha1.RoleBinding{Name: fmt.Sprint(i), NamespaceSelector: &metav1.LabelSelector{}, Subject: account("gone")}
			}),
			namespaces: 10_000, want: tooLong,
		},
		"roles without additional rules":               {cp: roles(10_000, 1, all), namespaces: 2000, want: tooLong},
		"a different union of roles in each namespace": {cp: roles(400, 100, allBut), namespaces: 500, want: tooLong},
		"selectors without matches": {
			cp: roles(20_000, 1, func(i int) *metav1.LabelSelector {
				return &metav1.LabelSelector{MatchLabels: map[string]string{"none": fmt.Sprint(i)}}
			}),
			namespaces: 3000, want: tooLong,
		},
		"values in selectors": {
			cp: roles(1000, 1, func(i int) *metav1.LabelSelector {
				values := []string{fmt.Sprintf("only-%d", i)}
				for j := range 100 {
					values = append(values, fmt.Sprintf("none-%d", j))
				}
				return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "number", Operator: metav1.LabelSelectorOpIn, Values: values}}}
			}),
			namespaces: 3000, want: tooLong,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range ptr.Deref(test.cp.Spec.RoleBindings, nil) {
				(*test.cp.Spec.RoleBindings)[i].RoleRef = v1alpha1.RoleRef{Kind: kindRole}
			}
			result, errs := Render(test.cp, Inputs{NamespacesKnown: true, Namespaces: numbered(test.namespaces), SizeLimitBytes: defaultLimitBytes})
			if result != nil || len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "spec: Too long: "+test.want) {
				t.Errorf("errors of Render() = %v, want %q", errs, test.want)
			}
		})
	}
}

func TestLargeSpecIsRendered(t *testing.T) {
	in := Inputs{NamespacesKnown: true, Namespaces: numbered(1000), SizeLimitBytes: defaultLimitBytes}
	for _, role := range mustRender[rbacv1.Role](t, roles(100, 1, all), in, 1000) {
		if len(role.Rules) != 1 {
			t.Errorf("rules in %s = %v, want one rule", role.Namespace, role.Rules)
		}
	}
}

// Without a limit, the cost is linear in the input and in the result.
func TestUnboundedWorkIsLinear(t *testing.T) {
	const many = 20_000
	t.Run("rules", func(t *testing.T) {
		for _, role := range mustRender[rbacv1.Role](t, overlapping(2, many), Inputs{NamespacesKnown: true, Namespaces: numbered(5)}, 5) {
			if len(role.Rules) != 2*many {
				t.Errorf("number of rules in %s = %d, want %d", role.Namespace, len(role.Rules), 2*many)
			}
		}
	})
	t.Run("subjects", func(t *testing.T) {
		accounts := Accounts{}
		bindings := make([]v1alpha1.RoleBinding, 2)
		for i := range bindings {
			bindings[i] = v1alpha1.RoleBinding{NamespaceSelector: all(i), RoleRef: v1alpha1.RoleRef{Kind: kindRole}}
			for j := range many {
				name := fmt.Sprintf("a%d-%d", i, j)
				bindings[i].Subjects = append(bindings[i].Subjects, *account(name))
				accounts[name] = &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: authenticationv1beta1.ManagedServiceAccountStatus{
					ServiceAccountRef: &authenticationv1beta1.ServiceAccountReference{Namespace: "agent", Name: name},
				}}
			}
		}
		cp := permission(v1alpha1.ClusterPermissionSpec{RoleBindings: &bindings})
		in := Inputs{NamespacesKnown: true, Namespaces: numbered(5), Accounts: accounts}
		for _, binding := range mustRender[rbacv1.RoleBinding](t, cp, in, 5) {
			if len(binding.Subjects) != 2*many {
				t.Errorf("number of subjects in %s = %d, want %d", binding.Namespace, len(binding.Subjects), 2*many)
			}
		}
	})
}

// The items of the first part are delivered unchanged. A further part adds its new items
// only in the namespaces of both parts.
func TestMerge(t *testing.T) {
	rule := func(resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}}
	}
	only := func(number string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"number": number}}
	}
	cp := permission(v1alpha1.ClusterPermissionSpec{Roles: &[]v1alpha1.Role{
		{NamespaceSelector: &metav1.LabelSelector{}, Rules: []rbacv1.PolicyRule{rule("a"), rule("b"), rule("a")}},
		{NamespaceSelector: only("1"), Rules: []rbacv1.PolicyRule{rule("c"), rule("b"), rule("c")}},
		{NamespaceSelector: only("2"), Rules: []rbacv1.PolicyRule{}},
		{NamespaceSelector: all(0), Rules: []rbacv1.PolicyRule{rule("d"), rule("c")}},
	}})
	want := []string{"a b a d c", "a b a c d", "a b a d c", "a b a d c"}
	var got []string
	for _, role := range mustRender[rbacv1.Role](t, cp, Inputs{NamespacesKnown: true, Namespaces: numbered(4)}, 4) {
		var resources []string
		for _, rule := range role.Rules {
			resources = append(resources, rule.Resources...)
		}
		got = append(got, strings.Join(resources, " "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules = %q, want %q", got, want)
	}
}
