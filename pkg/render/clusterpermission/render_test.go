package clusterpermission

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	rbacvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/validation"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	"open-cluster-management.io/hub-apiserver/pkg/apis/work"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	workvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/work/validation"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	testUID      = types.UID("0123abcd-0000-4000-8000-000000000000")
	goldenSuffix = ".golden.yaml"
)

// golden is what a golden file holds.
type golden struct {
	Work        *workv1.ManifestWork `json:"work"`
	Undelivered []Undelivered        `json:"undelivered,omitempty"`
}

func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	accounts := loadAccounts(t)
	cases := 0
	for _, input := range inputs {
		if strings.HasSuffix(input, goldenSuffix) {
			continue
		}
		cases++
		t.Run(strings.TrimSuffix(filepath.Base(input), ".yaml"), func(t *testing.T) {
			cp := load(t, input)
			if errs := validate(t, cp); len(errs) > 0 {
				t.Fatalf("the input is invalid: %v", errs.ToAggregate())
			}
			result, errs := Render(cp, Inputs{Accounts: accounts})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			checkWork(t, result.Work)

			got, err := yaml.Marshal(golden{result.Work, result.Undelivered})
			if err != nil {
				t.Fatal(err)
			}
			file := strings.TrimSuffix(input, ".yaml") + goldenSuffix
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
	if cases == 0 {
		t.Error("no inputs found")
	}
}

// checkWork holds the rendered work to the rules for every ManifestWork.
func checkWork(t *testing.T, mw *workv1.ManifestWork) {
	t.Helper()
	if mw == nil {
		return
	}
	var internal work.ManifestWork
	if err := scheme.Scheme.Convert(mw.DeepCopy(), &internal, nil); err != nil {
		t.Fatal(err)
	}
	if errs := workvalidation.ValidateManifestWork(&internal, 0); len(errs) > 0 {
		t.Errorf("the rendered work is invalid: %v", errs.ToAggregate())
	}
	for _, manifest := range mw.Spec.Workload.Manifests {
		for _, stray := range []string{"creationTimestamp", "null", "status", "aggregationRule"} {
			if bytes.Contains(manifest.Raw, []byte(stray)) {
				t.Errorf("%s contains %s", manifest.Raw, stray)
			}
		}
	}
}

func load(t *testing.T, file string) *v1alpha1.ClusterPermission {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cp := &v1alpha1.ClusterPermission{}
	if err := yaml.UnmarshalStrict(data, cp); err != nil {
		t.Fatal(err)
	}
	cp.UID = testUID
	return cp
}

func loadAccounts(t *testing.T) Accounts {
	t.Helper()
	data, err := os.ReadFile("testdata/accounts/accounts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list authenticationv1beta1.ManagedServiceAccountList
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		t.Fatal(err)
	}
	accounts := Accounts{}
	for i := range list.Items {
		accounts[list.Items[i].Name] = &list.Items[i]
	}
	return accounts
}

func validate(t *testing.T, cp *v1alpha1.ClusterPermission) field.ErrorList {
	t.Helper()
	var internal rbac.ClusterPermission
	if err := scheme.Scheme.Convert(cp.DeepCopy(), &internal, nil); err != nil {
		t.Fatal(err)
	}
	return rbacvalidation.ValidateClusterPermission(&internal)
}

func TestEqualInputGivesEqualBytes(t *testing.T) {
	first, _ := Render(load(t, "testdata/seed-001.yaml"), Inputs{})
	second, _ := Render(load(t, "testdata/seed-001.yaml"), Inputs{})
	for i := range first.Work.Spec.Workload.Manifests {
		a, b := first.Work.Spec.Workload.Manifests[i].Raw, second.Work.Spec.Workload.Manifests[i].Raw
		if !bytes.Equal(a, b) {
			t.Errorf("manifest %d: %s, then %s", i, a, b)
		}
	}
}

func TestInputStaysAsItIs(t *testing.T) {
	cp := load(t, "testdata/seed-001.yaml")
	before := cp.DeepCopy()
	if _, errs := Render(cp, Inputs{}); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	a, _ := yaml.Marshal(before)
	b, _ := yaml.Marshal(cp)
	if !bytes.Equal(a, b) {
		t.Errorf("rendering changed its input:\n%s\nto:\n%s", a, b)
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
	result, errs := Render(load(t, "testdata/nothing-delivered.yaml"), Inputs{})
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

// What is accepted must not become too large when the agent reports the accounts.
func TestLargestAccounts(t *testing.T) {
	for _, file := range []string{"managedserviceaccount", "managedserviceaccount-absent"} {
		cp := load(t, "testdata/"+file+".yaml")
		var sizes []int
		for _, accounts := range []Accounts{nil, loadAccounts(t), LargestAccounts(cp)} {
			result, errs := Render(cp, Inputs{Accounts: accounts})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			size := 0
			for _, manifest := range result.Work.Spec.Workload.Manifests {
				size += len(manifest.Raw)
			}
			sizes = append(sizes, size)
		}
		if !slices.IsSorted(sizes) || sizes[0] == sizes[2] {
			t.Errorf("%s: %d bytes without accounts, %d with accounts, %d at most", file, sizes[0], sizes[1], sizes[2])
		}
	}
}

func TestAccountNames(t *testing.T) {
	account := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: v1alpha1.ManagedServiceAccountGroup, Kind: v1alpha1.ManagedServiceAccountKind, Name: name}
	}
	single := account("c")
	cp := &v1alpha1.ClusterPermission{Spec: v1alpha1.ClusterPermissionSpec{
		ClusterRoleBinding:  &v1alpha1.ClusterRoleBinding{Subject: &single, Subjects: []rbacv1.Subject{account("c"), {Kind: rbacv1.UserKind, Name: "x"}}},
		ClusterRoleBindings: &[]v1alpha1.ClusterRoleBinding{{Subjects: []rbacv1.Subject{account("b"), account("d")}}},
		RoleBindings: &[]v1alpha1.RoleBinding{
			{Subjects: []rbacv1.Subject{account("a"), {Kind: rbacv1.ServiceAccountKind, Name: "y"}}}, {Subject: &single},
		},
	}}
	if got, want := AccountNames(cp), []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
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
			got = append(got, config.ResourceIdentifier.Namespace+"/"+config.ResourceIdentifier.Name)
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
			spec: v1alpha1.ClusterPermissionSpec{RoleBindings: with(func(b *v1alpha1.RoleBinding) { b.RoleRef.Name = "leader" })},
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
		"too large": {
			spec:  v1alpha1.ClusterPermissionSpec{RoleBindings: &[]v1alpha1.RoleBinding{binding}},
			limit: 100,
			want:  "spec: Too long: renders to",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cp := &v1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "cluster1", UID: testUID}, Spec: test.spec}
			result, errs := Render(cp, Inputs{SizeLimitBytes: test.limit})
			if result != nil {
				t.Errorf("got a result: %v", result)
			}
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), test.want) {
				t.Errorf("got %v, want %q", errs, test.want)
			}
		})
	}
}
