package clusterpermission

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// waiting returns a copy of cp with a spec that waits for approval and a previous spec that is
// delivered.
func waiting(cp *v1alpha1.ClusterPermission) *v1alpha1.ClusterPermission {
	former := v1alpha1.ClusterPermissionSpec{
		RoleBindings: &[]v1alpha1.RoleBinding{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"delivered": "former"}},
			RoleRef:           v1alpha1.RoleRef{Kind: kindRole},
			Subject:           &rbacv1.Subject{APIGroup: v1alpha1.ManagedServiceAccountGroup, Kind: v1alpha1.ManagedServiceAccountKind, Name: "former"},
		}},
		RoleRefs: &[]v1alpha1.HubRoleRef{{Kind: kindClusterRole, Name: "former"}, {Kind: kindClusterRole, Name: "both"}},
	}
	out := cp.DeepCopy()
	out.Status.Approval = &v1alpha1.Approval{
		Pending:   &v1alpha1.PendingGeneration{Generation: 2},
		Delivered: &v1alpha1.DeliveredGeneration{Generation: 1, Spec: former},
	}
	return out
}

func TestHubRoleKeys(t *testing.T) {
	cp := &v1alpha1.ClusterPermission{Spec: v1alpha1.ClusterPermissionSpec{RoleRefs: &[]v1alpha1.HubRoleRef{
		{Kind: kindRole, Namespace: "b", Name: "y"},
		{Kind: kindRole, Namespace: "a", Name: "z"},
		{Kind: kindClusterRole, Name: "both", APIGroup: rbacv1.GroupName},
		{Kind: kindRole, Namespace: "b", Name: "x"},
		{Kind: kindClusterRole, Name: "both"},
	}}}
	roles := []ObjectKey{{kindRole, "a", "z"}, {kindRole, "b", "x"}, {kindRole, "b", "y"}}
	if got, want := HubRoleKeys(cp), append([]ObjectKey{{kindClusterRole, "", "both"}}, roles...); !slices.Equal(got, want) {
		t.Errorf("HubRoleKeys() = %v, want %v", got, want)
	}
	if got, want := HubRoleKeys(waiting(cp)), append([]ObjectKey{{kindClusterRole, "", "both"}, {kindClusterRole, "", "former"}}, roles...); !slices.Equal(got, want) {
		t.Errorf("HubRoleKeys() while waiting for approval = %v, want %v", got, want)
	}
}

func TestSelectors(t *testing.T) {
	none := &v1alpha1.ClusterPermission{Spec: v1alpha1.ClusterPermissionSpec{
		Roles:        &[]v1alpha1.Role{{Namespace: "default"}},
		RoleBindings: &[]v1alpha1.RoleBinding{{Namespace: "default"}},
	}}
	some := &v1alpha1.ClusterPermission{Spec: v1alpha1.ClusterPermissionSpec{
		Roles: &[]v1alpha1.Role{
			{Namespace: "default"},
			{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "qa"}}},
			{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}}},
		},
		RoleBindings: &[]v1alpha1.RoleBinding{{NamespaceSelector: &metav1.LabelSelector{}}},
	}}
	tests := map[string]struct {
		cp   *v1alpha1.ClusterPermission
		want []string
	}{
		"none":                          {cp: none},
		"some":                          {cp: some, want: []string{"team=qa", ""}},
		"none, previous spec delivered": {cp: waiting(none), want: []string{"delivered=former"}},
		"some, previous spec delivered": {cp: waiting(some), want: []string{"delivered=former", "team=qa", ""}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, selector := range Selectors(test.cp) {
				got = append(got, selector.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Selectors() = %q, want %q", got, test.want)
			}
			if HasSelectors(test.cp) != (len(test.want) > 0) {
				t.Errorf("HasSelectors() = %t, want %t", HasSelectors(test.cp), len(test.want) > 0)
			}
		})
	}
}
