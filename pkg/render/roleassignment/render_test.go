package roleassignment

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	rbacv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1beta1"
)

func TestName(t *testing.T) {
	seen := map[string]string{}
	for _, of := range [][2]string{{"a", "b"}, {"b", "b"}, {"a", "b.c"}, {"a", strings.Repeat("n", 253)}, {"a", strings.Repeat("n", 252)}, {"a", strings.Repeat("n", 99) + ".-x"}} {
		name := Name(of[0], of[1])
		if problems := apivalidation.NameIsDNSSubdomain(name, false); len(problems) > 0 || len(name) > 182 {
			t.Errorf("Name(%q) = %q, want a short DNS subdomain: %v", of, name, problems)
		}
		if other := seen[name]; other != "" {
			t.Errorf("Name(%q) = %q, which is also the name of %s", of, name, other)
		}
		seen[name] = strings.Join(of[:], "/")
	}
}

func TestPermission(t *testing.T) {
	for name, subject := range map[string]rbacv1beta1.Subject{
		"User/ann":                   {Kind: rbacv1.UserKind, Name: "ann"},
		"Group/on-call":              {Kind: rbacv1.GroupKind, Name: "on-call", APIGroup: ptr.To(rbacv1.GroupName)},
		"ServiceAccount/default:bot": {Kind: rbacv1.ServiceAccountKind, Name: "bot", Namespace: ptr.To("default")},
	} {
		a := &rbacv1beta1.MulticlusterRoleAssignment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "readers", UID: "1"},
			Spec: rbacv1beta1.MulticlusterRoleAssignmentSpec{Subject: subject, RoleAssignments: []rbacv1beta1.RoleAssignment{
				{Name: "view", ClusterRole: "view"},
				{Name: "edit", ClusterRole: "edit", TargetNamespaces: []string{"prod", "default"}},
				{Name: "again", ClusterRole: "view"},
			}},
		}
		var grants []rbacv1beta1.Grant
		for i := range a.Spec.RoleAssignments {
			grants = append(grants, Grants(&a.Spec.Subject, &a.Spec.RoleAssignments[i])...)
		}
		permission := Permission(a, "cluster1", grants)
		want := []rbacv1beta1.Grant{
			{Subject: name, ClusterRole: "view"}, {Subject: name, ClusterRole: "edit", Namespace: "default"}, {Subject: name, ClusterRole: "edit", Namespace: "prod"},
		}
		if got := Granted(&permission.Spec); !slices.Equal(got, want) {
			t.Errorf("Granted(Permission(%s)) = %v, want %v", name, got, want)
		}
		slices.Reverse(grants)
		if again := Permission(a, "cluster1", grants); !equality.Semantic.DeepEqual(again, permission) {
			t.Errorf("Permission() depends on the order of grants")
		}
	}
}

func TestPermissionInFull(t *testing.T) {
	a := &rbacv1beta1.MulticlusterRoleAssignment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "readers", UID: "1"},
		Spec:       rbacv1beta1.MulticlusterRoleAssignmentSpec{Subject: rbacv1beta1.Subject{Kind: rbacv1.UserKind, Name: "ann"}},
	}
	got, err := yaml.Marshal(Permission(a, "cluster1", []rbacv1beta1.Grant{{Subject: "User/ann", ClusterRole: "view"}}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `metadata:
  annotations:
    rbac.open-cluster-management.io/role-assignment-name: readers
    rbac.open-cluster-management.io/role-assignment-uid: "1"
  labels:
    rbac.open-cluster-management.io/managed-by: multiclusterroleassignment-controller
    rbac.open-cluster-management.io/role-assignment-namespace: team
  name: readers-NAME
  namespace: cluster1
spec:
  clusterRoleBindings:
  - name: readers-NAME-BINDING
    roleRef:
      apiGroup: rbac.authorization.k8s.io
      kind: ClusterRole
      name: view
    subject:
      apiGroup: rbac.authorization.k8s.io
      kind: User
      name: ann
status: {}
`
	text := strings.ReplaceAll(string(got), hash("team", "readers"), "NAME")
	text = strings.ReplaceAll(text, hash("User/ann", "view", ""), "BINDING")
	if text != want {
		t.Errorf("Permission() =\n%s\nwant\n%s", text, want)
	}
}
