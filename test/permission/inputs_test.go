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

// What a selector selects follows the namespaces of the managed cluster.
func TestPermissionFollowsNamespaces(t *testing.T) {
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
	framework.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		_, err := f.ManagedClient.CoreV1().Namespaces().Get(ctx, second, metav1.GetOptions{})
		return framework.IsGone(err)
	})
	f.NoWorks(t, name)
}

// What is delivered of the hub's roles follows them.
func TestPermissionFollowsHubRoles(t *testing.T) {
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
		framework.Eventually(t, "the roles have the rules of the hub", func(ctx context.Context) error {
			clusterRole, err := f.ManagedClient.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			role, err := f.ManagedClient.RbacV1().Roles("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !equality.Semantic.DeepEqual(clusterRole.Rules, want) || !equality.Semantic.DeepEqual(role.Rules, want) {
				return fmt.Errorf("they have %v and %v", clusterRole.Rules, role.Rules)
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

// Bindings follow the accounts that they name, each by itself.
func TestPermissionFollowsAccounts(t *testing.T) {
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
		framework.Eventually(t, fmt.Sprintf("%s binds %v", binding, want), func(ctx context.Context) error {
			got, err := f.ManagedClient.RbacV1().ClusterRoleBindings().Get(ctx, binding, metav1.GetOptions{})
			if err == nil && !slices.Equal(got.Subjects, want) {
				err = fmt.Errorf("it binds %v", got.Subjects)
			}
			return err
		})
	}
	absent := func() {
		t.Helper()
		cp := f.PermissionSays(t, framework.Cluster1, name, rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionFalse, late+" does not exist")
		if framework.ConditionSays(cp, rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionFalse, early) == nil {
			t.Errorf("the account that is there is said to be absent as well: %v", cp.Status.Conditions)
		}
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

// A ManagedCluster that is deleted takes along what the hub has for the cluster. It can be
// made again, and is another one then.
func TestPermissionsGoWithTheirManagedCluster(t *testing.T) {
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
	// The hub's admission may take a new namespace for the one that was deleted, for a moment.
	permit := func() {
		t.Helper()
		cp := framework.Permission(name)
		cp.Namespace = cluster
		framework.Eventually(t, "a ClusterPermission is made", func(ctx context.Context) error {
			_, err := permissions.Create(ctx, cp, metav1.CreateOptions{})
			return err
		})
		framework.Eventually(t, "its work is there", func(ctx context.Context) error {
			works, err := f.OCM.WorkV1().ManifestWorks(cluster).List(ctx, metav1.ListOptions{})
			if err == nil && len(works.Items) != 1 {
				err = fmt.Errorf("there are %d works", len(works.Items))
			}
			return err
		})
	}
	leave := func() {
		t.Helper()
		if err := clusters.Delete(ctx, cluster, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, "the ManagedCluster is gone", func(ctx context.Context) error {
			_, err := clusters.Get(ctx, cluster, metav1.GetOptions{})
			return framework.IsGone(err)
		})
		_, err := f.HubClient.CoreV1().Namespaces().Get(ctx, cluster, metav1.GetOptions{})
		if err := framework.IsGone(err); err != nil {
			t.Errorf("its namespace is not: %v", err)
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
				t.Errorf("%d %s are left (%v)", count, what, err)
			}
		}
	}
	join()
	permit()
	leave()
	cp := framework.Permission("for-nobody")
	cp.Namespace = cluster
	if _, err := permissions.Create(ctx, cp, metav1.CreateOptions{}); !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
		t.Errorf("got %v for one of a cluster that is not there", err)
	}
	join()
	permit()
	leave()
}

// Both samples of the proposal, as they are written there, are delivered whole once
// what they name exists.
func TestPermissionsOfTheProposal(t *testing.T) {
	f := shared(t)
	framework.CreateRole(t, f.HubClient, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-reader"}, Rules: framework.ReadPods})
	framework.CreateClusterRole(t, f.HubClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "secret-reader"}, Rules: framework.ReadAll})
	samples := map[string]string{"my-managed-rbac": "testdata/seed-001.yaml", "my-managed-rbac-with-refs": "testdata/seed-001-rolerefs.yaml"}
	for name, file := range samples {
		framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, name)
		if out, err := f.Kubectl(t, "", "apply", "-f", file); err != nil {
			t.Fatalf("kubectl apply -f %s: %v\n%s", file, err, out)
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
	// GitOps tools apply them again and again.
	for name, file := range samples {
		framework.Eventually(t, "to apply "+file+" again changes nothing", func(ctx context.Context) error {
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
				return fmt.Errorf("it was %+v and is %+v", before, after)
			}
			return nil
		})
	}
	binding := framework.Must(f.ManagedClient.RbacV1().RoleBindings("kube-system").Get(t.Context(), "my-managed-rbac", metav1.GetOptions{}))(t)
	if want := []rbacv1.Subject{inNamespace(framework.AccountsNamespace, "managed-sa-sample")}; !slices.Equal(binding.Subjects, want) {
		t.Errorf("the account's binding is for %v, not %v", binding.Subjects, want)
	}
	// Other tests have the same sample.
	for name := range samples {
		f.deletePermission(t, framework.Must(f.GetPermission(t.Context(), name))(t))
	}
	f.Absent(t, framework.NewObject("ClusterRole", "", "my-managed-rbac"), framework.NewObject("Role", "default", "my-managed-rbac"), framework.NewObject("ClusterRole", "", "secret-reader"))
}
