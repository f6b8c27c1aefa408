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
