package clusterpermission

import (
	"cmp"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/seed"
)

// FuzzRender renders random specs with random inputs. The vocabulary is small, so that
// parts often overlap.
func FuzzRender(f *testing.F) {
	first := seed.Of(f)
	for n := range uint64(300) {
		f.Add(first + n)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		cp := g.clusterPermission(t)
		in := g.inputs()
		result, errs := Render(cp, in)
		if len(errs) > 0 {
			t.Fatalf("Render() of a valid spec = %v, want no error", errs.ToAggregate())
		}
		checkWork(t, result.Work)
		checkEachOnce(t, result)
		checkGranted(t, cp, in, result)

		g.Shuffle(len(in.Namespaces), func(i, j int) {
			in.Namespaces[i], in.Namespaces[j] = in.Namespaces[j], in.Namespaces[i]
		})
		in.Accounts, in.HubRoles = maps.Clone(in.Accounts), maps.Clone(in.HubRoles)
		again, _ := Render(cp.DeepCopy(), in)
		if a, b := asJSON(t, result), asJSON(t, again); a != b {
			t.Errorf("Render() with inputs in another order =\n%s\nwant\n%s", b, a)
		}
	})
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func checkEachOnce(t *testing.T, result *Result) {
	t.Helper()
	listed := names(t, result.Work)
	slices.Sort(listed)
	if len(slices.Compact(slices.Clone(listed))) != len(listed) {
		t.Errorf("manifests = %q, want each object once", listed)
	}
}

// rbacObject decodes manifests of all rendered kinds.
type rbacObject struct {
	rbacv1.RoleBinding
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// checkGranted checks that every rule and binding of the spec is delivered to each of its
// namespaces, or reported as undelivered.
func checkGranted(t *testing.T, cp *v1alpha1.ClusterPermission, in Inputs, result *Result) {
	t.Helper()
	delivered := map[ObjectKey]rbacObject{}
	if result.Work != nil {
		for _, m := range result.Work.Spec.Workload.Manifests {
			var obj rbacObject
			if err := json.Unmarshal(m.Raw, &obj); err != nil {
				t.Fatal(err)
			}
			delivered[ObjectKey{obj.Kind, obj.Namespace, obj.Name}] = obj
		}
	}
	checkRules(t, cp, in, result, delivered)
	checkBindings(t, cp, in, result, delivered)
}

func reported(result *Result, path, about string) bool {
	return slices.ContainsFunc(result.Undelivered, func(u Undelivered) bool {
		return strings.HasPrefix(u.Path, path) && strings.Contains(u.Reason, about)
	})
}

func checkRules(t *testing.T, cp *v1alpha1.ClusterPermission, in Inputs, result *Result, delivered map[ObjectKey]rbacObject) {
	t.Helper()
	wantRules := map[ObjectKey][]rbacv1.PolicyRule{}
	for i, role := range ptr.Deref(cp.Spec.Roles, nil) {
		namespaces := wantNamespaces(t, role.Namespace, role.NamespaceSelector, in)
		if path := specPath.Child("roles").Index(i).String(); len(namespaces) == 0 && !reported(result, path, "namespace") {
			t.Errorf("Undelivered = %v, want it to contain %s, which matches no namespace", result.Undelivered, path)
		}
		for _, namespace := range namespaces {
			key := ObjectKey{kindRole, namespace, cp.Name}
			wantRules[key] = append(wantRules[key], role.Rules...)
		}
	}
	for i, ref := range ptr.Deref(cp.Spec.RoleRefs, nil) {
		key := ObjectKey{ref.Kind, ref.Namespace, ref.Name}
		rules, found := in.HubRoles[key]
		if path := specPath.Child("roleRefs").Index(i).String(); !found && !reported(result, path, key.String()) {
			t.Errorf("Undelivered = %v, want it to contain %s, which refers to a missing object", result.Undelivered, path)
		}
		if found {
			wantRules[key] = append(wantRules[key], rules...)
		}
	}
	for key, want := range wantRules {
		if got := delivered[key].Rules; !sameRules(got, want) {
			t.Errorf("rules of %v = %v, want %v", key, got, want)
		}
	}
}

func checkBindings(t *testing.T, cp *v1alpha1.ClusterPermission, in Inputs, result *Result, delivered map[ObjectKey]rbacObject) {
	t.Helper()
	for i, binding := range ptr.Deref(cp.Spec.RoleBindings, nil) {
		path := specPath.Child("roleBindings").Index(i).String()
		name, roleName := cmp.Or(binding.Name, cp.Name), cmp.Or(ptr.Deref(binding.RoleRef.Name, ""), cp.Name)
		namespaces := wantNamespaces(t, binding.Namespace, binding.NamespaceSelector, in)
		if len(namespaces) == 0 && !reported(result, path, "namespace") {
			t.Errorf("Undelivered = %v, want it to contain %s, which matches no namespace", result.Undelivered, path)
		}
		for _, namespace := range namespaces {
			got := delivered[ObjectKey{kindRoleBinding, namespace, name}]
			undelivered := reported(result, path, namespace) || reported(result, path, "no subject")
			sameRole := got.RoleRef.Kind == binding.RoleRef.Kind && got.RoleRef.Name == roleName
			if undelivered == sameRole && !reported(result, path, "no subject") {
				t.Errorf("%s in %s: roleRef = %v, want %s %s; reported as undelivered: %t", path, namespace, got.RoleRef, binding.RoleRef.Kind, roleName, undelivered)
			}
			if undelivered {
				continue
			}
			for _, subject := range wantSubjects(binding.Subjects, in) {
				if count := countOf(got.Subjects, subject); count != 1 {
					t.Errorf("%s in %s: number of subjects %v = %d, want 1", path, namespace, subject, count)
				}
			}
		}
		for j, subject := range binding.Subjects {
			path := specPath.Child("roleBindings").Index(i).Child("subjects").Index(j).String()
			if isAccount(subject) && in.Accounts[subject.Name] == nil && !reported(result, path, subject.Name) {
				t.Errorf("Undelivered = %v, want it to contain %s, which refers to a missing object", result.Undelivered, path)
			}
		}
	}
}

// wantSubjects returns the subjects on the managed cluster.
func wantSubjects(subjects []rbacv1.Subject, in Inputs) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, subject := range subjects {
		if !isAccount(subject) {
			out = append(out, subject)
		} else if account := in.Accounts[subject.Name]; account != nil {
			ref := account.Status.ServiceAccountRef
			out = append(out, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	return out
}

func wantNamespaces(t *testing.T, namespace string, labelSelector *metav1.LabelSelector, in Inputs) []string {
	t.Helper()
	if labelSelector == nil {
		return []string{namespace}
	}
	if !in.NamespacesKnown {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(labelSelector)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range in.Namespaces {
		if selector.Matches(labels.Set(n.Labels)) {
			out = append(out, n.Name)
		}
	}
	return out
}

// sameRules reports whether two lists contain the same rules, ignoring order and duplicates.
func sameRules(a, b []rbacv1.PolicyRule) bool {
	holds := func(all, of []rbacv1.PolicyRule) bool {
		for _, r := range of {
			if !slices.ContainsFunc(all, func(other rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, other) }) {
				return false
			}
		}
		return true
	}
	return holds(a, b) && holds(b, a)
}

func countOf(subjects []rbacv1.Subject, wanted rbacv1.Subject) int {
	count := 0
	for _, s := range subjects {
		if s == wanted {
			count++
		}
	}
	return count
}

type generator struct {
	*rand.Rand
}

func pick[T any](g generator, choices ...T) T {
	return choices[g.IntN(len(choices))]
}

func some[T any](g generator, most int, one func() T) *[]T {
	out := make([]T, g.IntN(most+1))
	for i := range out {
		out[i] = one()
	}
	return &out
}

// clusterPermission returns a random valid ClusterPermission.
func (g generator) clusterPermission(t *testing.T) *v1alpha1.ClusterPermission {
	for {
		cp := &v1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "cluster1", UID: testUID}}
		observe := g.IntN(2) == 0
		cp.Spec.Validate = &observe
		if g.IntN(2) == 0 {
			cp.Spec.ClusterRole = &v1alpha1.ClusterRole{Rules: g.rules()}
		}
		if g.IntN(2) == 0 {
			cp.Spec.ClusterRoleBinding = &v1alpha1.ClusterRoleBinding{Subjects: g.subjects()}
		}
		cp.Spec.Roles = some(g, 4, func() v1alpha1.Role {
			role := v1alpha1.Role{Rules: g.rules()}
			role.Namespace, role.NamespaceSelector = g.place()
			return role
		})
		cp.Spec.RoleBindings = some(g, 5, func() v1alpha1.RoleBinding {
			binding := v1alpha1.RoleBinding{Name: pick(g, "", "", "p", "q"), Subjects: g.subjects()}
			binding.RoleRef.Kind = pick(g, kindRole, kindClusterRole)
			if g.IntN(2) == 0 {
				binding.RoleRef.APIGroup, binding.RoleRef.Name = new(rbacv1.GroupName), new(pick(g, "p", "view"))
			}
			binding.Namespace, binding.NamespaceSelector = g.place()
			return binding
		})
		cp.Spec.RoleRefs = some(g, 3, func() v1alpha1.HubRoleRef {
			if g.IntN(2) == 0 {
				return v1alpha1.HubRoleRef{Kind: kindClusterRole, Name: pick(g, "p", "view", "gone")}
			}
			return v1alpha1.HubRoleRef{Kind: kindRole, Namespace: pick(g, "ns-a", "ns-b"), Name: pick(g, "p", "view", "gone")}
		})
		if len(validate(t, cp)) == 0 {
			return cp
		}
	}
}

func (g generator) place() (string, *metav1.LabelSelector) {
	switch g.IntN(6) {
	case 0:
		return "", &metav1.LabelSelector{}
	case 1, 2:
		return "", &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(g, "x", "y", "none")}}
	case 3:
		return "", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: pick(g, "team", "tier"), Operator: metav1.LabelSelectorOpExists}}}
	}
	return pick(g, "ns-a", "ns-b", "ns-z"), nil
}

func (g generator) rules() []rbacv1.PolicyRule {
	return *some(g, 3, func() rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{pick(g, "pods", "secrets")}, Verbs: []string{pick(g, "get", "list")}}
	})
}

func (g generator) subjects() []rbacv1.Subject {
	all := []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"},
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "qa"},
		{APIGroup: v1alpha1.ManagedServiceAccountGroup, Kind: v1alpha1.ManagedServiceAccountKind, Name: "robot"},
		{APIGroup: v1alpha1.ManagedServiceAccountGroup, Kind: v1alpha1.ManagedServiceAccountKind, Name: "gone"},
	}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+g.IntN(len(all))]
}

func (g generator) inputs() Inputs {
	in := Inputs{
		Accounts: Accounts{"robot": &authenticationv1beta1.ManagedServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Name: "robot"},
			Status: authenticationv1beta1.ManagedServiceAccountStatus{
				ServiceAccountRef: &authenticationv1beta1.ServiceAccountReference{Namespace: "agent", Name: "robot"},
			},
		}},
		NamespacesKnown: g.IntN(8) > 0,
		HubRoles:        HubRoles{},
	}
	for _, name := range []string{"ns-a", "ns-b", "ns-c", "ns-d"} {
		namespace := Namespace{Name: name, Labels: map[string]string{}}
		for _, key := range []string{"team", "tier"} {
			if g.IntN(3) > 0 {
				namespace.Labels[key] = pick(g, "x", "y")
			}
		}
		if g.IntN(4) > 0 {
			in.Namespaces = append(in.Namespaces, namespace)
		}
	}
	for _, key := range []ObjectKey{{kindClusterRole, "", "p"}, {kindClusterRole, "", "view"}, {kindRole, "ns-a", "p"}, {kindRole, "ns-b", "p"}, {kindRole, "ns-a", "view"}} {
		if g.IntN(4) > 0 {
			in.HubRoles[key] = g.rules()
		}
	}
	return in
}
