package rbac

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func user(name string) Subject  { return Subject{Name: name} }
func group(name string) Subject { return Subject{Group: true, Name: name} }

func TestNewBinding(t *testing.T) {
	t.Parallel()
	subjects := []rbacv1.Subject{
		{Kind: "User", Name: "b"}, {Kind: "Group", Name: "a"}, {Kind: "User", Name: "b"},
		{Kind: "ServiceAccount", Name: "s"}, {Kind: "ServiceAccount", Namespace: "n", Name: "s"}, {Kind: "Robot", Name: "r"},
	}
	for _, test := range []struct {
		namespace string
		ref       rbacv1.RoleRef
		want      Binding
	}{
		{"a", rbacv1.RoleRef{Kind: "Role", Name: "r"},
			Binding{Key{"Role", "a", "r"}, []Subject{user("b"), user("system:serviceaccount:a:s"), user("system:serviceaccount:n:s"), group("a")}}},
		{"a", rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"},
			Binding{Key{"ClusterRole", "", "r"}, []Subject{user("b"), user("system:serviceaccount:a:s"), user("system:serviceaccount:n:s"), group("a")}}},
		{"", rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Binding{Key{"ClusterRole", "", "r"}, []Subject{user("b"), user("system:serviceaccount:n:s"), group("a")}}},
		// A ClusterRoleBinding cannot refer to a Role.
		{"", rbacv1.RoleRef{Kind: "Role", Name: "r"}, Binding{Key{}, []Subject{user("b"), user("system:serviceaccount:n:s"), group("a")}}},
		{"a", rbacv1.RoleRef{Kind: "Robot", Name: "r"},
			Binding{Key{}, []Subject{user("b"), user("system:serviceaccount:a:s"), user("system:serviceaccount:n:s"), group("a")}}},
	} {
		if got := NewBinding(test.namespace, test.ref, subjects); got.Role != test.want.Role || !slices.Equal(got.Subjects, test.want.Subjects) {
			t.Errorf("NewBinding(%q, %v, %v) = %v, want %v", test.namespace, test.ref, subjects, *got, test.want)
		}
	}
}
