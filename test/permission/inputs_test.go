package permission

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// createNamespace creates a namespace of the managed cluster, which is deleted after the test.
func (f *fleet) createNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	namespaces := f.ManagedClient.CoreV1().Namespaces()
	framework.Must(namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		err := namespaces.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			t.Error(err)
		}
	})
}

// TestPermissionFollowsNamespaces checks that selectors follow the namespaces of the managed
// cluster.
func TestPermissionFollowsNamespaces(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "follows-namespaces"
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{name: "yes"}}
	cp := framework.Permission(name)
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{
		Roles:        &[]rbacv1alpha1.Role{{NamespaceSelector: selector, Rules: framework.ReadPods}},
		RoleBindings: &[]rbacv1alpha1.RoleBinding{{NamespaceSelector: selector, RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: framework.UserSubject("bob")}},
	}
	framework.CreatePermission(t, f.OCM, cp)
	selected := func(status metav1.ConditionStatus, count int) {
		t.Helper()
		f.PermissionSays(t, framework.Cluster1, name, rbacv1alpha1.ConditionNamespacesSelected, status,
			fmt.Sprintf("spec.roles[0].namespaceSelector: %d", count), fmt.Sprintf("spec.roleBindings[0].namespaceSelector: %d", count))
	}
	in := func(namespace string) []framework.Object {
		return []framework.Object{framework.NewObject("Role", namespace, name), framework.NewObject("RoleBinding", namespace, name)}
	}
	selected(metav1.ConditionFalse, 0)

	first, second := name+"-1", name+"-2"
	f.createNamespace(t, first, map[string]string{name: "yes"})
	f.Present(t, in(first)...)
	selected(metav1.ConditionTrue, 1)
	f.createNamespace(t, second, nil)
	label := func(namespace, patch string) {
		t.Helper()
		framework.Must(f.ManagedClient.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	}
	label(second, `{"metadata":{"labels":{"`+name+`":"yes"}}}`)
	f.Present(t, in(second)...)
	selected(metav1.ConditionTrue, 2)
	f.Applied(t, name)

	label(first, `{"metadata":{"labels":{"`+name+`":null}}}`)
	f.Absent(t, in(first)...)
	selected(metav1.ConditionTrue, 1)
	if err := f.ManagedClient.CoreV1().Namespaces().Delete(t.Context(), second, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	selected(metav1.ConditionFalse, 0)
	framework.Eventually(t, "namespace "+second+" does not exist", func(ctx context.Context) error {
		_, err := f.ManagedClient.CoreV1().Namespaces().Get(ctx, second, metav1.GetOptions{})
		return framework.IsGone(err)
	})
	f.NoWorks(t, name)
}

// TestPermissionFollowsHubRoles checks that delivered roles follow the roles of the hub.
func TestPermissionFollowsHubRoles(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "follows-roles"
	clusterRole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: framework.ReadPods}
	framework.CreateClusterRole(t, f.HubClient, clusterRole)
	framework.CreateRole(t, f.HubClient, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Rules: framework.ReadPods})
	cp := framework.Permission(name + "-permission")
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{
		ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{
			Subject: framework.UserSubject("alice"), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		},
		RoleRefs: &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: name}, {Kind: "Role", Namespace: "default", Name: name}},
	}
	framework.CreatePermission(t, f.OCM, cp)
	delivered := func(want []rbacv1.PolicyRule) {
		t.Helper()
		framework.Eventually(t, "the delivered roles have the rules of the hub's roles", func(ctx context.Context) error {
			clusterRole, err := f.ManagedClient.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			role, err := f.ManagedClient.RbacV1().Roles("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !equality.Semantic.DeepEqual(clusterRole.Rules, want) || !equality.Semantic.DeepEqual(role.Rules, want) {
				return fmt.Errorf("rules = %v and %v, want %v", clusterRole.Rules, role.Rules, want)
			}
			return nil
		})
	}
	present := func(status metav1.ConditionStatus, texts ...string) {
		t.Helper()
		f.PermissionSays(t, framework.Cluster1, cp.Name, rbacv1alpha1.ConditionRoleRefsPresent, status, texts...)
	}
	delivered(framework.ReadPods)
	present(metav1.ConditionTrue)

	rules := []byte(framework.ToJSON(map[string]any{"rules": framework.ReadAll}))
	framework.Must(f.HubClient.RbacV1().ClusterRoles().Patch(t.Context(), name, types.MergePatchType, rules, metav1.PatchOptions{}))(t)
	framework.Must(f.HubClient.RbacV1().Roles("default").Patch(t.Context(), name, types.MergePatchType, rules, metav1.PatchOptions{}))(t)
	delivered(framework.ReadAll)

	if err := f.HubClient.RbacV1().ClusterRoles().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	present(metav1.ConditionFalse, "ClusterRole "+name)
	f.Absent(t, framework.NewObject("ClusterRole", "", name))
	f.Present(t, framework.NewObject("Role", "default", name), framework.NewObject("ClusterRoleBinding", "", cp.Name))
	framework.Must(f.HubClient.RbacV1().ClusterRoles().Create(t.Context(), clusterRole, metav1.CreateOptions{}))(t)
	present(metav1.ConditionTrue)
	f.Present(t, framework.NewObject("ClusterRole", "", name))

	if err := f.HubClient.RbacV1().Roles("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	present(metav1.ConditionFalse, "Role default/"+name)
	f.Absent(t, framework.NewObject("Role", "default", name))
}

// TestPermissionFollowsAccounts checks that bindings follow the accounts that they name,
// independently of each other.
func TestPermissionFollowsAccounts(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name, early, late = "follows-accounts", "follows-early", "follows-late"
	framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, early))
	cp := framework.Permission(name)
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{
		ClusterRoleBindings: &[]rbacv1alpha1.ClusterRoleBinding{
			{Name: early, Subject: managedAccount(early), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
			{Name: late, Subject: managedAccount(late), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
			{Name: name, Subjects: []rbacv1.Subject{*managedAccount(late), *framework.UserSubject("alice")}, RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
		},
	}
	framework.CreatePermission(t, f.OCM, cp)
	boundTo := func(binding string, want ...rbacv1.Subject) {
		t.Helper()
		framework.Eventually(t, fmt.Sprintf("ClusterRoleBinding %s binds %v", binding, want), func(ctx context.Context) error {
			got, err := f.ManagedClient.RbacV1().ClusterRoleBindings().Get(ctx, binding, metav1.GetOptions{})
			if err == nil && !slices.Equal(got.Subjects, want) {
				err = fmt.Errorf("subjects = %v", got.Subjects)
			}
			return err
		})
	}
	absent := func() {
		t.Helper()
		framework.Eventually(t, "the message of SubjectPresent contains the missing account only", func(ctx context.Context) error {
			cp, err := f.GetPermission(ctx, name)
			if err != nil {
				return err
			}
			if framework.ConditionSays(cp, rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionFalse, early) == nil {
				return fmt.Errorf("message of SubjectPresent contains %s, which exists: %v", early, cp.Status.Conditions)
			}
			return framework.ConditionSays(cp, rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionFalse, late+" does not exist")
		})
		boundTo(early, inNamespace(framework.AccountsNamespace, early))
		boundTo(name, *framework.UserSubject("alice"))
		f.Absent(t, framework.NewObject("ClusterRoleBinding", "", late))
	}
	boundTo(early, inNamespace(framework.AccountsNamespace, early))
	absent()
	framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, late))
	f.PermissionSays(t, framework.Cluster1, name, rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionTrue)
	boundTo(late, inNamespace(framework.AccountsNamespace, late))
	boundTo(name, inNamespace(framework.AccountsNamespace, late), *framework.UserSubject("alice"))
	if err := f.OCM.AuthenticationV1beta1().ManagedServiceAccounts(framework.Cluster1).Delete(t.Context(), late, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	absent()
}

// TestPermissionsAreDeletedWithTheManagedCluster checks that the deletion of a ManagedCluster
// deletes its namespace, ClusterPermissions and ManifestWorks on the hub. A new ManagedCluster can
// have the same name.
func TestPermissionsAreDeletedWithTheManagedCluster(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const cluster, name = "goes-and-comes", "goes-along"
	ctx, clusters, permissions := t.Context(), f.OCM.ClusterV1().ManagedClusters(), f.OCM.RbacV1alpha1().ClusterPermissions(cluster)
	join := func() {
		t.Helper()
		if err := localhub.JoinCluster(ctx, f.Hub, cluster); err != nil {
			t.Fatal(err)
		}
	}
	// For a short time, the hub's admission may still see the deleted namespace.
	permit := func() {
		t.Helper()
		cp := framework.Permission(name)
		cp.Namespace = cluster
		framework.Eventually(t, "ClusterPermission "+name+" is created", func(ctx context.Context) error {
			_, err := permissions.Create(ctx, cp, metav1.CreateOptions{})
			return err
		})
		framework.Eventually(t, "ClusterPermission "+name+" has a ManifestWork", func(ctx context.Context) error {
			works, err := f.OCM.WorkV1().ManifestWorks(cluster).List(ctx, metav1.ListOptions{})
			if err == nil && len(works.Items) != 1 {
				err = fmt.Errorf("ManifestWorks = %d, want 1", len(works.Items))
			}
			return err
		})
	}
	leave := func() {
		t.Helper()
		if err := clusters.Delete(ctx, cluster, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "ManagedCluster "+cluster+" does not exist", func(ctx context.Context) error {
			_, err := clusters.Get(ctx, cluster, metav1.GetOptions{})
			return framework.IsGone(err)
		})
		_, err := f.HubClient.CoreV1().Namespaces().Get(ctx, cluster, metav1.GetOptions{})
		if err := framework.IsGone(err); err != nil {
			t.Errorf("get namespace %s: %v, want NotFound", cluster, err)
		}
		for what, left := range map[string]func() (int, error){
			"ClusterPermissions": func() (int, error) {
				list, err := permissions.List(ctx, metav1.ListOptions{})
				return len(list.Items), err
			},
			"ManifestWorks": func() (int, error) {
				list, err := f.OCM.WorkV1().ManifestWorks(cluster).List(ctx, metav1.ListOptions{})
				return len(list.Items), err
			},
		} {
			if count, err := left(); err != nil || count > 0 {
				t.Errorf("%s of a deleted ManagedCluster = %d, error %v, want none", what, count, err)
			}
		}
	}
	join()
	permit()
	leave()
	cp := framework.Permission("for-nobody")
	cp.Namespace = cluster
	if _, err := permissions.Create(ctx, cp, metav1.CreateOptions{}); !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
		t.Errorf("create for a deleted ManagedCluster = %v, want 422 or 404", err)
	}
	join()
	permit()
	leave()
}

// TestPermissionsOfTheProposal checks that both unchanged samples of the proposal are fully
// delivered after the objects that they refer to exist.
//
// The test is not parallel, because TestPermissionTable creates the same roles on the hub.
func TestPermissionsOfTheProposal(t *testing.T) {
	f := shared(t)
	framework.CreateRole(t, f.HubClient, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-reader"}, Rules: framework.ReadPods})
	framework.CreateClusterRole(t, f.HubClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "secret-reader"}, Rules: framework.ReadAll})
	samples := map[string]string{"my-managed-rbac": "testdata/proposal.yaml", "my-managed-rbac-with-refs": "testdata/proposal-rolerefs.yaml"}
	for name, file := range samples {
		framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, name)
		if out, err := f.Kubectl(t, "", "apply", "-f", file); err != nil {
			t.Fatalf("kubectl apply -f %s = %v, want nil:\n%s", file, err, out)
		}
	}
	f.PermissionSays(t, framework.Cluster1, "my-managed-rbac", rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse)
	framework.CreateAccount(t, f.OCM, framework.NewAccount(framework.Cluster1, "managed-sa-sample"))
	f.createNamespace(t, "sample-of-the-proposal", map[string]string{"foo.com/managed-state": "managed"})

	for name := range samples {
		framework.Eventually(t, "all conditions of "+name+" are True", func(ctx context.Context) error {
			cp, err := f.GetPermission(ctx, name)
			if err != nil {
				return err
			}
			if err := framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue); err != nil {
				return err
			}
			return allTrue(cp)
		})
	}
	f.Present(t, framework.NewObject("Role", "sample-of-the-proposal", "my-managed-rbac"), framework.NewObject("RoleBinding", "sample-of-the-proposal", "my-managed-rbac"),
		framework.NewObject("RoleBinding", "kube-system", "my-managed-rbac"), framework.NewObject("Role", "default", "pod-reader"), framework.NewObject("ClusterRole", "", "secret-reader"))
	// GitOps tools apply the same files repeatedly.
	for name, file := range samples {
		framework.Eventually(t, "a second kubectl apply of "+file+" changes nothing", func(ctx context.Context) error {
			before, err := f.GetPermission(ctx, name)
			if err != nil {
				return err
			}
			if out, err := f.Kubectl(t, "", "apply", "-f", file); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			after, err := f.GetPermission(ctx, name)
			if err != nil {
				return err
			}
			if before.ResourceVersion != after.ResourceVersion {
				return fmt.Errorf("ClusterPermission = %+v, want it unchanged: %+v", after, before)
			}
			return nil
		})
	}
	binding := framework.Must(f.ManagedClient.RbacV1().RoleBindings("kube-system").Get(t.Context(), "my-managed-rbac", metav1.GetOptions{}))(t)
	if want := []rbacv1.Subject{inNamespace(framework.AccountsNamespace, "managed-sa-sample")}; !slices.Equal(binding.Subjects, want) {
		t.Errorf("subjects of RoleBinding kube-system/my-managed-rbac = %v, want %v", binding.Subjects, want)
	}
	// Other tests create the same samples, so delete them before the test ends.
	for name := range samples {
		f.deletePermission(t, framework.Must(f.GetPermission(t.Context(), name))(t))
	}
	f.Absent(t, framework.NewObject("ClusterRole", "", "my-managed-rbac"), framework.NewObject("Role", "default", "my-managed-rbac"), framework.NewObject("ClusterRole", "", "secret-reader"))
}
