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

func TestRenderDoesNotChangeInputs(t *testing.T) {
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
			t.Errorf("%s: inputs after Render() =\n%s\nwant\n%s", name, after, before)
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
	result, errs := Render(load(t, "testdata/proposal.yaml"), in)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	checkWork(t, result.Work)
	in.Executor.Subject.ServiceAccount.Name = "changed afterwards"
	if got := result.Work.Spec.Executor; !equality.Semantic.DeepEqual(got, executor("robot")) {
		t.Errorf("executor = %v, want %v", got, executor("robot"))
	}
}

func TestWorkName(t *testing.T) {
	for uid, want := range map[types.UID]string{testUID: "p-0123a", "01": "p-01", "": "p-"} {
		cp := &v1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid}}
		if got := WorkName(cp); got != want {
			t.Errorf("WorkName() with UID %q = %q, want %q", uid, got, want)
		}
	}
}

func TestNoWorkIfNothingIsDelivered(t *testing.T) {
	result, errs := Render(load(t, "testdata/nothing-delivered.yaml"), loadInputs(t))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if result.Work != nil {
		t.Errorf("Work = %v, want nil", result.Work)
	}
	if len(result.Undelivered) != 3 {
		t.Errorf("Undelivered = %v, want 3 parts", result.Undelivered)
	}
}

// Until the agent reports the namespaces, parts without selectors are delivered.
func TestNamespacesUnknown(t *testing.T) {
	cp := load(t, "testdata/proposal.yaml")
	in := loadInputs(t)
	in.NamespacesKnown = false
	result, errs := Render(cp, in)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	if !result.WaitingForNamespaces || len(result.Selections) > 0 {
		t.Errorf("WaitingForNamespaces = %t, Selections = %v, want true and none", result.WaitingForNamespaces, result.Selections)
	}
	const reason = "the agent of the managed cluster has not reported its namespaces"
	for _, path := range []string{"spec.roles[1].namespaceSelector", "spec.roleBindings[2].namespaceSelector"} {
		if !slices.Contains(result.Undelivered, Undelivered{Path: path, Reason: reason}) {
			t.Errorf("Undelivered = %v, want it to contain %s", result.Undelivered, path)
		}
	}
	want := []string{"ClusterRole /my-managed-rbac", "ClusterRoleBinding /my-managed-rbac", "Role default/my-managed-rbac", "RoleBinding default/my-managed-rbac"}
	if got := names(t, result.Work); !slices.Equal(got, want) {
		t.Errorf("manifests = %q, want %q", got, want)
	}

	cp.Spec.Roles, cp.Spec.RoleBindings = nil, nil
	if result, errs = Render(cp, in); len(errs) > 0 || result.WaitingForNamespaces {
		t.Errorf("Render() without selectors = %+v, %v, want WaitingForNamespaces false", result, errs)
	}
}

// names returns the kind, namespace and name of each manifest.
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

// The reasons are part of a condition, so that their length is bounded.
func TestReasonIsBounded(t *testing.T) {
	alice := &rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}
	everywhere := func(role string) v1alpha1.RoleBinding {
		return v1alpha1.RoleBinding{
			NamespaceSelector: &metav1.LabelSelector{}, Subject: alice,
			RoleRef: v1alpha1.RoleRef{APIGroup: new(rbacv1.GroupName), Kind: kindClusterRole, Name: new(role)},
		}
	}
	cp := permission(v1alpha1.ClusterPermissionSpec{RoleBindings: &[]v1alpha1.RoleBinding{everywhere("view"), everywhere("edit")}})
	for count, want := range map[int]string{
		1:    "RoleBinding p in namespace n0000 conflicts with spec.roleBindings[0], which binds ClusterRole view",
		2:    "in namespaces n0000, n0001 conflicts",
		1000: "n0008, n0009 and 990 more conflicts",
	} {
		result, errs := Render(cp, Inputs{NamespacesKnown: true, Namespaces: numbered(count)})
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		if len(result.Undelivered) != 1 || result.Undelivered[0].Path != "spec.roleBindings[1].namespaceSelector" ||
			!strings.Contains(result.Undelivered[0].Reason, want) {
			t.Errorf("Undelivered with %d namespaces = %v, want a reason that contains %q", count, result.Undelivered, want)
		}
	}
}

func TestNumberOfReasonsIsBounded(t *testing.T) {
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
	if len(result.Undelivered) != maxConflicts+1 {
		t.Fatalf("number of reasons = %d, want %d", len(result.Undelivered), maxConflicts+1)
	}
	for i, want := range map[int]string{
		0:            "RoleBinding p in namespace n0000 conflicts with spec.roleBindings[1], which binds ClusterRole view",
		maxConflicts: "RoleBinding p in 4990 more namespaces conflicts with other parts of the spec",
	} {
		if got := (Undelivered{Path: "spec.roleBindings[0].namespaceSelector", Reason: want}); result.Undelivered[i] != got {
			t.Errorf("Undelivered[%d] = %v, want %v", i, result.Undelivered[i], got)
		}
	}
}

// numbered returns the namespaces n0000, n0001 and so on.
func numbered(count int) []Namespace {
	out := make([]Namespace, count)
	for i := range out {
		out[i] = Namespace{Name: fmt.Sprintf("n%04d", i), Labels: map[string]string{"number": fmt.Sprint(i), "team": "qa"}}
	}
	return out
}

// The agent observes roles by read-only manifests that contain only a name. A role that
// the ManifestWork itself delivers has no read-only manifest, since it would be a
// duplicate.
func TestReadOnlyManifests(t *testing.T) {
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
			t.Errorf("%s: Render() = %v, want no error", file, errs.ToAggregate())
			continue
		}
		checkWork(t, result.Work)
		var got []string
		for _, config := range result.Work.Spec.ManifestConfigs {
			got = append(got, ptr.Deref(config.ResourceIdentifier.Namespace, "")+"/"+config.ResourceIdentifier.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: read-only manifests = %q, want %q", file, got, want)
		}
	}
}

// Specs that validation rejects may have been stored earlier. For such a spec, Render
// returns an error, and not a ManifestWork without the invalid part.
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
		"incomplete roleRef": {
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: with(func(b *v1alpha1.RoleBinding) { b.RoleRef.Name = new("leader") })},
			want: "spec.roleBindings[0].roleRef.apiGroup: Required",
		},
		"incomplete roleRef of a ClusterRoleBinding": {
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
		"empty subject": {
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: with(func(b *v1alpha1.RoleBinding) { b.Subject = &rbacv1.Subject{} })},
			want: "spec.roleBindings[0].subjects: Required",
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
			// The error does not depend on other objects of the hub and of the cluster.
			for _, in := range []Inputs{{SizeLimitBytes: test.limit}, full} {
				result, errs := Render(cp, in)
				if result != nil {
					t.Errorf("Render() = %v, want no result", result)
				}
				if len(errs) != 1 || !strings.Contains(errs[0].Error(), test.want) {
					t.Errorf("errors of Render() = %v, want %q", errs, test.want)
				}
			}
		})
	}
}
