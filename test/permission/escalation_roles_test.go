package permission

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// refersTo returns a ClusterPermission that delivers a ClusterRole of the hub.
func refersTo(name, clusterRole string) *rbacv1alpha1.ClusterPermission {
	return &rbacv1alpha1.ClusterPermission{
		ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: name},
		Spec:       rbacv1alpha1.ClusterPermissionSpec{RoleRefs: &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: clusterRole}}},
	}
}

// hubRole creates a ClusterRole on the hub, and deletes it at the end of the test.
func (f *fleet) hubRole(t *testing.T, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	roles := f.HubClient.RbacV1().ClusterRoles()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := roles.Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := roles.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// mayGet grants a rule to a caller on the whole hub, with a ClusterRole and a ClusterRoleBinding of
// that name.
func (f *fleet) mayGet(t *testing.T, c *framework.Caller, name string, rule rbacv1.PolicyRule) {
	t.Helper()
	f.hubRole(t, name, rule)
	bindings := f.HubClient.RbacV1().ClusterRoleBindings()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{c.Subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bindings.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	c.AwaitAllowed(t, "", rule)
}

// TestRoleRefsRequireRead checks that a reference to a role of the hub requires permission to read
// the role and to grant it: the ManifestWork shows the rules of the role.
func TestRoleRefsRequireRead(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name, role = "refers", "integration-hub-role"
	f.hubRole(t, role, framework.ReadPods...)
	alice := framework.NewCaller(t, f.Hub, "alice-refers").IsAdmin(t)
	_, err := alice.Permissions().Create(t.Context(), refersTo(name, role), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("create = %v, want 403", err)
	}
	_, text, said := strings.Cut(err.Error(), fmt.Sprintf("ClusterRole %q: grant it with a ClusterRole, bound by a ClusterRoleBinding, that contains the rule ", role))
	if !said {
		t.Fatalf("error = %v, want a rule to read ClusterRole %s", err, role)
	}
	var rule rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
		t.Fatalf("rule in the message = %s, want a PolicyRule: %v", text, err)
	}
	want := rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{role}, Verbs: []string{"get"}}
	if !equality.Semantic.DeepEqual(rule, want) {
		t.Errorf("rule in the message = %v, want %v", rule, want)
	}
	f.notStored(t, name)

	// Permission to grant does not include permission to read.
	granter := framework.NewCaller(t, f.Hub, "granter-refers").IsAdmin(t).IsGranter(t)
	if err := tries(t.Context(), granter, refersTo(name, role)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("create by a granter without permission to read the role = %v, want 403 with the rule", err)
	}
	// A role that does not exist causes the same error. So the error does not reveal whether a role
	// exists.
	if err := tries(t.Context(), alice, refersTo(name, "integration-no-role")); !apierrors.IsForbidden(err) {
		t.Errorf("create with a role that does not exist = %v, want 403", err)
	}
	// An update of a ClusterPermission that another user created requires the same permission.
	framework.CreatePermission(t, f.OCM, framework.Permission("refers-later"))
	added := f.Applied(t, "refers-later")
	added.Spec.RoleRefs, added.ResourceVersion = refersTo(name, role).Spec.RoleRefs, ""
	if _, err := alice.Permissions().Update(t.Context(), added, metav1.UpdateOptions{DryRun: dryRun}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("update that adds the role = %v, want 403 with the rule", err)
	}

	reader := framework.NewCaller(t, f.Hub, "reader-refers").IsAdmin(t)
	f.mayGet(t, reader, "integration-reader", rule)
	const missing = `spec.roleRefs[0], cluster-wide: the hub's ClusterRole "` + role + `": its rules are unknown or may change`
	_, err = reader.Permissions().Create(t.Context(), refersTo(name, role), metav1.CreateOptions{})
	allowing := refusedFor(t, err, missing)
	if !slices.Equal(allowing.Verbs, []string{"escalate"}) {
		t.Errorf("verbs of the rule in the message = %v, want escalate", allowing.Verbs)
	}
	f.notStored(t, name)

	both := framework.NewCaller(t, f.Hub, "reader-and-granter").IsAdmin(t)
	f.mayGet(t, both, "integration-reader-and-granter", rule)
	both.May(t, framework.Cluster1, allowing)
	framework.CreatePermission(t, both.OCM, refersTo(name, role))
	f.Applied(t, name)
	delivered := framework.Must(f.ManagedClient.RbacV1().ClusterRoles().Get(t.Context(), role, metav1.GetOptions{}))(t)
	if !equality.Semantic.DeepEqual(delivered.Rules, framework.ReadPods) {
		t.Errorf("rules on the managed cluster = %v, want %v", delivered.Rules, framework.ReadPods)
	}
}

// TestDefaultRoles checks that the hub aggregates the roles of artifacts/rbac into its roles admin,
// edit and view, according to their labels. Users with these roles then have exactly the documented
// permissions on ClusterPermissions.
func TestDefaultRoles(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const aggregates, ours = "rbac.authorization.k8s.io/aggregate-to-", "open-cluster-management:clusterpermission:"
	manifests := framework.Must(localhub.ReadManifests(filepath.Join(localhub.Root(), "artifacts", "rbac")))(t)
	found := 0
	for _, manifest := range manifests {
		if manifest.GetKind() != "ClusterRole" || !strings.HasPrefix(manifest.GetName(), ours) {
			continue
		}
		found++
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, into := range []string{"admin", "edit", "view"} {
			contains := func(rule rbacv1.PolicyRule) func(context.Context) error {
				return func(ctx context.Context) error {
					aggregated, err := f.HubClient.RbacV1().ClusterRoles().Get(ctx, into, metav1.GetOptions{})
					if err == nil && !slices.ContainsFunc(aggregated.Rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
						err = fmt.Errorf("rules = %v", aggregated.Rules)
					}
					return err
				}
			}
			for _, rule := range role.Rules {
				if role.Labels[aggregates+into] == "true" {
					framework.Eventually(t, fmt.Sprintf("ClusterRole %s contains the rules of %s", into, role.Name), contains(rule))
				} else if contains(rule)(t.Context()) == nil {
					t.Errorf("ClusterRole %s contains the rule %v of %s, want it absent", into, rule, role.Name)
				}
			}
		}
	}
	if found != 3 {
		t.Fatalf("roles for ClusterPermissions in artifacts/rbac = %d, want 3", found)
	}

	type question struct{ verb, resource string }
	reads := []question{
		{"get", "clusterpermissions"}, {"list", "clusterpermissions"}, {"watch", "clusterpermissions"},
		{"get", "clusterpermissions/status"}, {"get", "clusterpermissions/rendered"},
		{"get", "clusternamespaces"}, {"list", "clusternamespaces"}, {"watch", "clusternamespaces"},
	}
	writes := []question{
		{"create", "clusterpermissions"}, {"update", "clusterpermissions"}, {"patch", "clusterpermissions"},
		{"delete", "clusterpermissions"}, {"deletecollection", "clusterpermissions"},
		{"update", "clusterpermissions/approval"}, {"create", "clusterpermissions/rendered"},
	}
	grants := []question{
		{"escalate", "clusterpermissions"}, {"bind", "clusterpermissions"},
		{"update", "clusterpermissions/status"}, {"patch", "clusterpermissions/status"}, {"patch", "clusterpermissions/approval"},
		{"create", "clusternamespaces"}, {"update", "clusternamespaces"}, {"delete", "clusternamespaces"},
	}
	for role, allowed := range map[string][]question{"view": reads, "edit": reads, "admin": append(slices.Clone(reads), writes...)} {
		c := framework.NewCaller(t, f.Hub, "only-"+role).Is(t, role, "get", "clusterpermissions")
		for _, q := range slices.Concat(reads, writes, grants) {
			got := framework.Must(c.Allowed(t.Context(), framework.Cluster1, q.verb, rbacv1alpha1.GroupName, q.resource, ""))(t)
			if want := slices.Contains(allowed, q); got != want {
				t.Errorf("Allowed(%s, %s %s) = %t, want %t", role, q.verb, q.resource, got, want)
			}
		}
		_, err := c.Permissions().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("list by %s = %v, want nil", role, err)
		}
		_, err = c.OCM.RbacV1alpha1().ClusterPermissions("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("list by %s in another namespace = %v, want 403", role, err)
		}
		if err := tries(t.Context(), c, framework.Permission("default-roles")); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "cannot grant") != (role == "admin") {
			t.Errorf("create by %s = %v, want 403, with \"cannot grant\" for admin only", role, err)
		}
	}
}
