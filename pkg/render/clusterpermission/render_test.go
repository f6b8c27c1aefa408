package clusterpermission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
)

func TestInputStaysAsItIs(t *testing.T) {
	for name, file := range caseFiles(t) {
		in := loadInputs(t)
		in.Executor = executor("robot")
		cp := load(t, file)
		before := asYAML(t, cp, in.Accounts, in.Namespaces, hubRolesInOrder(in.HubRoles), in.Executor)
		if _, errs := Render(cp, in); len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		after := asYAML(t, cp, in.Accounts, in.Namespaces, hubRolesInOrder(in.HubRoles), in.Executor)
		if before != after {
			t.Errorf("%s: rendering changed its input:\n%s\nto:\n%s", name, before, after)
		}
	}
}

func hubRolesInOrder(roles HubRoles) []string {
	var out []string
	for key, rules := range roles {
		out = append(out, fmt.Sprint(key, rules))
	}
	slices.Sort(out)
	return out
}

func asYAML(t *testing.T, values ...any) string {
	t.Helper()
	out, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func executor(name string) *workv1.ManifestWorkExecutor {
	return &workv1.ManifestWorkExecutor{Subject: workv1.ManifestWorkExecutorSubject{
		Type:           workv1.ExecutorSubjectTypeServiceAccount,
		ServiceAccount: &workv1.ManifestWorkSubjectServiceAccount{Namespace: "permissions", Name: name},
	}}
}

func TestExecutor(t *testing.T) {
	in := loadInputs(t)
	in.Executor = executor("robot")
	result, errs := Render(load(t, "testdata/seed-001.yaml"), in)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	checkWork(t, result.Work)
	in.Executor.Subject.ServiceAccount.Name = "changed afterwards"
	if got := result.Work.Spec.Executor; !equality.Semantic.DeepEqual(got, executor("robot")) {
		t.Errorf("got executor %v", got)
	}
}

func TestWorkName(t *testing.T) {
	for uid, want := range map[types.UID]string{testUID: "p-0123a", "01": "p-01", "": "p-"} {
		cp := &v1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid}}
		if got := WorkName(cp); got != want {
			t.Errorf("UID %q: got %q, want %q", uid, got, want)
		}
	}
}

func TestNothingDeliveredGivesNoWork(t *testing.T) {
	result, errs := Render(load(t, "testdata/nothing-delivered.yaml"), loadInputs(t))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if result.Work != nil {
		t.Errorf("got a work: %v", result.Work)
	}
	if len(result.Undelivered) != 3 {
		t.Errorf("got %v", result.Undelivered)
	}
}

// Until the agent reports the namespaces, all that does not go by selectors is delivered.
func TestNamespacesUnknown(t *testing.T) {
	cp := load(t, "testdata/seed-001.yaml")
	in := loadInputs(t)
	in.NamespacesKnown = false
	result, errs := Render(cp, in)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if !result.WaitingForNamespaces || len(result.Selections) > 0 {
		t.Errorf("waiting: %t, selections: %v", result.WaitingForNamespaces, result.Selections)
	}
	const reason = "the agent of the managed cluster has not reported its namespaces"
	for _, path := range []string{"spec.roles[1].namespaceSelector", "spec.roleBindings[2].namespaceSelector"} {
		if !slices.Contains(result.Undelivered, Undelivered{Path: path, Reason: reason}) {
			t.Errorf("%s is not in %v", path, result.Undelivered)
		}
	}
	want := []string{"ClusterRole /my-managed-rbac", "ClusterRoleBinding /my-managed-rbac", "Role default/my-managed-rbac", "RoleBinding default/my-managed-rbac"}
	if got := names(t, result.Work); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	cp.Spec.Roles, cp.Spec.RoleBindings = nil, nil
	if result, errs = Render(cp, in); len(errs) > 0 || result.WaitingForNamespaces {
		t.Errorf("without selectors: got %+v, %v", result, errs)
	}
}

// names are kind, namespace and name of each manifest of a work.
func names(t testing.TB, mw *workv1.ManifestWork) []string {
	t.Helper()
	if mw == nil {
		return nil
	}
	var out []string
	for _, m := range mw.Spec.Workload.Manifests {
		var obj metav1.PartialObjectMetadata
		if err := json.Unmarshal(m.Raw, &obj); err != nil {
			t.Fatal(err)
		}
		out = append(out, obj.Kind+" "+obj.Namespace+"/"+obj.Name)
	}
	return out
}

// The reasons become part of a condition, however many namespaces there are.
func TestReasonStaysShort(t *testing.T) {
	alice := &rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}
	everywhere := func(role string) v1alpha1.RoleBinding {
		return v1alpha1.RoleBinding{
			NamespaceSelector: &metav1.LabelSelector{}, Subject: alice,
			RoleRef: v1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: kindClusterRole, Name: new(role)},
		}
	}
	cp := permission(v1alpha1.ClusterPermissionSpec{RoleBindings: &[]v1alpha1.RoleBinding{everywhere("view"), everywhere("edit")}})
	for count, want := range map[int]string{
		1:    "in namespace n0000 the RoleBinding p of spec.roleBindings[0] is in the way, which binds ClusterRole view",
		2:    "in namespaces n0000, n0001 the",
		1000: "n0008, n0009 and 990 more the",
	} {
		result, errs := Render(cp, Inputs{NamespacesKnown: true, Namespaces: numbered(count)})
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		if len(result.Undelivered) != 1 || result.Undelivered[0].Path != "spec.roleBindings[1].namespaceSelector" ||
			!strings.Contains(result.Undelivered[0].Reason, want) {
			t.Errorf("%d namespaces: got %v, want %q", count, result.Undelivered, want)
		}
	}
}

// Nor does it matter how many parts of the spec are in the way.
func TestObstaclesStayFew(t *testing.T) {
	const count = 5000
	alice := &rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}
	namespaces := numbered(count)
	role := func(name string) v1alpha1.RoleRef {
		return v1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: kindClusterRole, Name: new(name)}
	}
	bindings := []v1alpha1.RoleBinding{{NamespaceSelector: &metav1.LabelSelector{}, Subject: alice, RoleRef: role("edit")}}
	for _, namespace := range namespaces {
		bindings = append(bindings, v1alpha1.RoleBinding{Namespace: namespace.Name, Subject: alice, RoleRef: role("view")})
	}
	result, errs := Render(permission(v1alpha1.ClusterPermissionSpec{RoleBindings: &bindings}), Inputs{NamespacesKnown: true, Namespaces: namespaces})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if len(result.Undelivered) != maxObstacles+1 {
		t.Fatalf("got %d reasons, want %d", len(result.Undelivered), maxObstacles+1)
	}
	for i, want := range map[int]string{
		0:            "in namespace n0000 the RoleBinding p of spec.roleBindings[1] is in the way, which binds ClusterRole view",
		maxObstacles: "in 4990 more namespaces a RoleBinding p of another part of the spec is in the way",
	} {
		if got := (Undelivered{Path: "spec.roleBindings[0].namespaceSelector", Reason: want}); result.Undelivered[i] != got {
			t.Errorf("got %v, want %v", result.Undelivered[i], got)
		}
	}
}

// numbered are namespaces n0000, n0001 and so on.
func numbered(count int) []Namespace {
	out := make([]Namespace, count)
	for i := range out {
		out[i] = Namespace{Name: fmt.Sprintf("n%04d", i), Labels: map[string]string{"number": fmt.Sprint(i), "team": "qa"}}
	}
	return out
}

// The agent observes a role by a manifest that has its name only. Such a stub of
// a role that the work itself delivers would be a second manifest of one object.
func TestValidateStubs(t *testing.T) {
	for file, want := range map[string][]string{
		"clusterrole-unnamed":         nil,
		"rolebinding-own-clusterrole": nil,
		"roles-and-rolebindings":      {"default/leader", "/view"},
		"validate":                    {"/view", "default/leader", "kube-system/leader"},
		"validate-own-role-missing":   {"default/my-permission"},
	} {
		cp := load(t, "testdata/"+file+".yaml")
		yes := true
		cp.Spec.Validate = &yes
		result, errs := Render(cp, Inputs{})
		if len(errs) > 0 {
			t.Errorf("%s: %v", file, errs.ToAggregate())
			continue
		}
		checkWork(t, result.Work)
		var got []string
		for _, config := range result.Work.Spec.ManifestConfigs {
			got = append(got, ptr.Deref(config.ResourceIdentifier.Namespace, "")+"/"+config.ResourceIdentifier.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}

// What validation refuses today may have been stored before; it is an error
// here too, never a work that misses a part.
func TestErrors(t *testing.T) {
	alice := &rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}
	binding := v1alpha1.RoleBinding{Namespace: "default", RoleRef: v1alpha1.RoleRef{Kind: kindRole}, Subject: alice}
	with := func(change func(*v1alpha1.RoleBinding)) *[]v1alpha1.RoleBinding {
		b := binding
		change(&b)
		return &[]v1alpha1.RoleBinding{b}
	}
	hubRole := v1alpha1.HubRoleRef{Kind: kindClusterRole, Name: "reader"}
	withRef := func(change func(*v1alpha1.HubRoleRef)) v1alpha1.ClusterPermissionSpec {
		ref := hubRole
		change(&ref)
		return v1alpha1.ClusterPermissionSpec{RoleRefs: &[]v1alpha1.HubRoleRef{ref}}
	}
	tests := map[string]struct {
		spec  v1alpha1.ClusterPermissionSpec
		limit int64
		want  string
	}{
		"namespace and selector": {
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: with(func(b *v1alpha1.RoleBinding) { b.NamespaceSelector = &metav1.LabelSelector{} })},
			want: "spec.roleBindings[0].namespaceSelector: Forbidden",
		},
		"neither namespace nor selector": {
			spec: v1alpha1.ClusterPermissionSpec{Roles: &[]v1alpha1.Role{{}}},
			want: "spec.roles[0].namespace: Required",
		},
		"half roleRef": {
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: with(func(b *v1alpha1.RoleBinding) { b.RoleRef.Name = new("leader") })},
			want: "spec.roleBindings[0].roleRef.apiGroup: Required",
		},
		"half roleRef of a ClusterRoleBinding": {
			spec: v1alpha1.ClusterPermissionSpec{ClusterRoleBinding: &v1alpha1.ClusterRoleBinding{
				Subject: alice, RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kindClusterRole}}},
			want: "spec.clusterRoleBinding.roleRef.name: Required",
		},
		"kind of role": {
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: with(func(b *v1alpha1.RoleBinding) { b.RoleRef.Kind = "Group" })},
			want: "spec.roleBindings[0].roleRef.kind: Unsupported value",
		},
		"no subject": {
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: with(func(b *v1alpha1.RoleBinding) { b.Subject = nil })},
			want: "spec.roleBindings[0].subjects: Required",
		},
		"subject beside subjects": {
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: with(func(b *v1alpha1.RoleBinding) {
				b.Subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "bob"}}
			})},
			want: "spec.roleBindings[0].subject: Forbidden",
		},
		"duplicate": {
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: &[]v1alpha1.RoleBinding{binding, binding}},
			want: "spec.roleBindings[1].name: Duplicate",
		},
		"duplicate ClusterRoleBinding": {
			spec: v1alpha1.ClusterPermissionSpec{
				ClusterRoleBinding:  &v1alpha1.ClusterRoleBinding{Subject: alice},
				ClusterRoleBindings: &[]v1alpha1.ClusterRoleBinding{{Name: "p", Subject: alice}},
			},
			want: "spec.clusterRoleBindings[0].name: Duplicate",
		},
		"duplicate Role": {
			spec: v1alpha1.ClusterPermissionSpec{Roles: &[]v1alpha1.Role{{Namespace: "default"}, {Namespace: "default"}}},
			want: "spec.roles[1].namespace: Duplicate",
		},
		"role of the hub twice": {
			spec: v1alpha1.ClusterPermissionSpec{RoleRefs: &[]v1alpha1.HubRoleRef{hubRole, hubRole}},
			want: "spec.roleRefs[1].name: Duplicate",
		},
		"role of the hub and own Role": {
			spec: v1alpha1.ClusterPermissionSpec{
				Roles:    &[]v1alpha1.Role{{Namespace: "default"}},
				RoleRefs: &[]v1alpha1.HubRoleRef{{Kind: kindRole, Namespace: "default", Name: "p"}},
			},
			want: "spec.roleRefs[0].name: Duplicate",
		},
		"role of the hub and own ClusterRole": {
			spec: v1alpha1.ClusterPermissionSpec{
				ClusterRole: &v1alpha1.ClusterRole{},
				RoleRefs:    &[]v1alpha1.HubRoleRef{{Kind: kindClusterRole, Name: "p"}},
			},
			want: "spec.roleRefs[0].name: Duplicate",
		},
		"kind of a role of the hub": {
			spec: withRef(func(ref *v1alpha1.HubRoleRef) { ref.Kind = "Group" }),
			want: "spec.roleRefs[0].kind: Unsupported value",
		},
		"group of a role of the hub": {
			spec: withRef(func(ref *v1alpha1.HubRoleRef) { ref.APIGroup = "apps" }),
			want: "spec.roleRefs[0].apiGroup: Unsupported value",
		},
		"role of the hub without name": {
			spec: withRef(func(ref *v1alpha1.HubRoleRef) { ref.Name = "" }),
			want: "spec.roleRefs[0].name: Required",
		},
		"Role of the hub without namespace": {
			spec: withRef(func(ref *v1alpha1.HubRoleRef) { ref.Kind = kindRole }),
			want: "spec.roleRefs[0].namespace: Required",
		},
		"ClusterRole of the hub in a namespace": {
			spec: withRef(func(ref *v1alpha1.HubRoleRef) { ref.Namespace = "default" }),
			want: "spec.roleRefs[0].namespace: Forbidden",
		},
		"selector": {
			spec: v1alpha1.ClusterPermissionSpec{Roles: &[]v1alpha1.Role{{NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}}}}},
			want: "spec.roles[0].namespaceSelector: Invalid",
		},
		"too large": {
			spec:  v1alpha1.ClusterPermissionSpec{RoleBindings: &[]v1alpha1.RoleBinding{binding}},
			limit: 100,
			want:  "spec: Too long: renders to",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cp := permission(test.spec)
			full := loadInputs(t)
			full.SizeLimitBytes = test.limit
			// What there is on the hub and on the cluster does not make a spec renderable.
			for _, in := range []Inputs{{SizeLimitBytes: test.limit}, full} {
				result, errs := Render(cp, in)
				if result != nil {
					t.Errorf("got a result: %v", result)
				}
				if len(errs) != 1 || !strings.Contains(errs[0].Error(), test.want) {
					t.Errorf("got %v, want %q", errs, test.want)
				}
			}
		})
	}
}
