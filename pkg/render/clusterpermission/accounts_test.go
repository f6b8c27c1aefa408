package clusterpermission

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// An accepted ClusterPermission must not exceed the limit when the agent reports the accounts.
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
			t.Errorf("%s: size = %d bytes without accounts, %d with accounts, want at most %d", file, sizes[0], sizes[1], sizes[2])
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
		t.Errorf("AccountNames() = %q, want %q", got, want)
	}
	if got, want := AccountNames(waiting(cp)), []string{"a", "b", "c", "d", "former"}; !slices.Equal(got, want) {
		t.Errorf("AccountNames() while waiting for approval = %q, want %q", got, want)
	}
}

func TestPublicAgent(t *testing.T) {
	accounts := loadAccounts(t)
	tests := map[string]struct {
		account string
		agent   PublicAgent
		want    types.NamespacedName
		absent  string
	}{
		"default":                     {account: "public", want: types.NamespacedName{Namespace: "open-cluster-management-agent-addon", Name: "public"}},
		"namespace":                   {account: "public", agent: PublicAgent{Namespace: "elsewhere"}, want: types.NamespacedName{Namespace: "elsewhere", Name: "public"}},
		"absent":                      {account: "public", agent: PublicAgent{Absent: "the addon is not installed"}, absent: "ManagedServiceAccount public has no ServiceAccount on the cluster: the addon is not installed"},
		"absent, for another account": {account: "robot", agent: PublicAgent{Absent: "the addon is not installed"}, want: types.NamespacedName{Namespace: "where-the-agent-is", Name: "robot"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, absent := ServiceAccount(accounts[test.account], test.agent)
			if got != test.want || absent != test.absent {
				t.Errorf("ServiceAccount() = %v, %q, want %v, %q", got, absent, test.want, test.absent)
			}

			in := loadInputs(t)
			in.PublicAgent = test.agent
			result, errs := Render(load(t, "testdata/managedserviceaccount.yaml"), in)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if test.absent != "" && !slices.Contains(result.AbsentSubjects, test.absent) {
				t.Errorf("AbsentSubjects = %q, want them to contain %q", result.AbsentSubjects, test.absent)
			}
			if placed := fmt.Sprintf(`"name":%q,"namespace":%q`, test.want.Name, test.want.Namespace); test.absent == "" &&
				!bytes.Contains(result.Work.Spec.Workload.Manifests[1].Raw, []byte(placed)) {
				t.Errorf("manifest = %s, want it to contain %s", result.Work.Spec.Workload.Manifests[1].Raw, placed)
			}
		})
	}
}
