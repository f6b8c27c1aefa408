package kubevirtproject

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/view"
)

// TestList checks which projects a user has, and the names by which public consoles find them.
func TestList(t *testing.T) {
	alice := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"}
	role := func(kind, name string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: kind, Name: name} }
	key := func(namespace, name string) rbac.Key {
		return rbac.Key{Kind: rbac.KindRoleBinding, Namespace: namespace, Name: name}
	}
	x := access.New()
	for cluster, bindings := range map[string]map[rbac.Key]access.Binding{
		"cluster1": {
			key("kubevirt-workspace-1", "edit"): {RoleRef: role(rbac.KindClusterRole, "kubevirt.io:edit"), Subjects: []rbacv1.Subject{alice}},
			key("kubevirt-workspace-1", "view"): {RoleRef: role(rbac.KindClusterRole, "kubevirt.io:view"), Subjects: []rbacv1.Subject{alice}},
			key("own", "view"):                  {RoleRef: role(rbac.KindRole, "kubevirt.io:view"), Subjects: []rbacv1.Subject{alice}},
			key("others", "view"):               {RoleRef: role(rbac.KindClusterRole, "kubevirt.io:view"), Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "bob"}}},
			key("pods", "view"):                 {RoleRef: role(rbac.KindClusterRole, "view"), Subjects: []rbacv1.Subject{alice}},
		},
		"cluster2": {
			{Kind: rbac.KindClusterRoleBinding, Name: "view"}: {RoleRef: role(rbac.KindClusterRole, "kubevirt.io:view"), Subjects: []rbacv1.Subject{alice}},
			key("kubevirt-workspace-1", "edit"):               {RoleRef: role(rbac.KindClusterRole, "kubevirt.io:edit"), Subjects: []rbacv1.Subject{alice}},
		},
		"unknown": {key("a", "edit"): {RoleRef: role(rbac.KindClusterRole, "kubevirt.io:edit"), Subjects: []rbacv1.Subject{alice}}},
	} {
		x.Update(cluster, &access.Update{Full: true, Bindings: bindings, Roles: map[rbac.Key][]rbacv1.PolicyRule{
			{Kind: rbac.KindClusterRole, Name: "kubevirt.io:edit"}:            nil,
			{Kind: rbac.KindClusterRole, Name: "kubevirt.io:view"}:            nil,
			{Kind: rbac.KindClusterRole, Name: "view"}:                        nil,
			{Kind: rbac.KindRole, Namespace: "own", Name: "kubevirt.io:view"}: nil,
		}})
		x.SetState(cluster, access.State{Known: cluster != "unknown"})
	}
	storage := NewREST(&view.Bound{Index: x, Clusters: func() ([]string, error) { return []string{"unknown", "cluster2", "cluster1"}, nil }})
	list := func(name, field string) []string {
		t.Helper()
		options := &metainternalversion.ListOptions{}
		if field != "" {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", field)
		}
		found, err := storage.List(request.WithUser(t.Context(), &user.DefaultInfo{Name: name}), options)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, item := range found.(*clusterviewv1.ProjectList).Items {
			got = append(got, item.Name+" "+item.Labels["cluster"]+" "+item.Labels["project"])
		}
		return got
	}
	first := "4120e9fb-7eef-50ca-a61c-c3e7ee9dee78 cluster1 kubevirt-workspace-1"
	got := list("alice", "")
	if len(got) != 3 || got[0] != first || !slices.Equal([]string{got[1][36:], got[2]}, []string{" cluster1 own", "8ae384ef-db25-5677-8b8e-f43152c1b960 cluster2 all_projects"}) {
		t.Errorf("projects of alice = %v, want kubevirt-workspace-1 and own of cluster1, and all of cluster2", got)
	}
	if got := list("alice", first[:36]); !slices.Equal(got, []string{first}) {
		t.Errorf("projects of alice with the name of the first = %v, want it only", got)
	}
	if got := list("system:serviceaccount:a:b", ""); len(got) > 0 {
		t.Errorf("projects of a ServiceAccount of the hub = %v, want none", got)
	}
}
