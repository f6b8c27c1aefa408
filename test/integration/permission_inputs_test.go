package integration_test

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
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// createNamespace creates a namespace of the managed cluster, which is deleted after the test.
func (f *fleet) createNamespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	namespaces := f.managed.CoreV1().Namespaces()
	must(namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))(t)
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
	cp := permission(name)
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{
		Roles:        &[]rbacv1alpha1.Role{{NamespaceSelector: selector, Rules: readPods}},
		RoleBindings: &[]rbacv1alpha1.RoleBinding{{NamespaceSelector: selector, RoleRef: rbacv1alpha1.RoleRef{Kind: "Role"}, Subject: user("bob")}},
	}
	create(t, f.ocm, cp)
	selected := func(status metav1.ConditionStatus, count int) {
		t.Helper()
		f.permissionSays(t, cluster1, name, rbacv1alpha1.ConditionNamespacesSelected, status,
			fmt.Sprintf("spec.roles[0].namespaceSelector: %d", count), fmt.Sprintf("spec.roleBindings[0].namespaceSelector: %d", count))
	}
	in := func(namespace string) []object {
		return []object{{"Role", namespace, name}, {"RoleBinding", namespace, name}}
	}
	selected(metav1.ConditionFalse, 0)

	first, second := name+"-1", name+"-2"
	f.createNamespace(t, first, map[string]string{name: "yes"})
	f.present(t, in(first)...)
	selected(metav1.ConditionTrue, 1)
	f.createNamespace(t, second, nil)
	label := func(namespace, patch string) {
		t.Helper()
		must(f.managed.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	}
	label(second, `{"metadata":{"labels":{"`+name+`":"yes"}}}`)
	f.present(t, in(second)...)
	selected(metav1.ConditionTrue, 2)
	f.applied(t, name)

	label(first, `{"metadata":{"labels":{"`+name+`":null}}}`)
	f.absent(t, in(first)...)
	selected(metav1.ConditionTrue, 1)
	if err := f.managed.CoreV1().Namespaces().Delete(t.Context(), second, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	selected(metav1.ConditionFalse, 0)
	eventually(t, "the namespace is gone", func(ctx context.Context) error {
		_, err := f.managed.CoreV1().Namespaces().Get(ctx, second, metav1.GetOptions{})
		return isGone(err)
	})
	f.noWorks(t, name)
}

// What is delivered of the hub's roles follows them.
func TestPermissionFollowsHubRoles(t *testing.T) {
	f := shared(t)
	const name = "follows-roles"
	clusterRole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: readPods}
	createClusterRole(t, f.hub, clusterRole)
	createRole(t, f.hub, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Rules: readPods})
	cp := permission(name + "-permission")
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{
		ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{
			Subject: user("alice"), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		},
		RoleRefs: &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: name}, {Kind: "Role", Namespace: "default", Name: name}},
	}
	create(t, f.ocm, cp)
	delivered := func(want []rbacv1.PolicyRule) {
		t.Helper()
		eventually(t, "the roles have the rules of the hub", func(ctx context.Context) error {
			clusterRole, err := f.managed.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			role, err := f.managed.RbacV1().Roles("default").Get(ctx, name, metav1.GetOptions{})
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
		f.permissionSays(t, cluster1, cp.Name, rbacv1alpha1.ConditionRoleRefsPresent, status, texts...)
	}
	delivered(readPods)
	present(metav1.ConditionTrue)

	rules := []byte(toJSON(map[string]any{"rules": readAll}))
	must(f.hub.RbacV1().ClusterRoles().Patch(t.Context(), name, types.MergePatchType, rules, metav1.PatchOptions{}))(t)
	must(f.hub.RbacV1().Roles("default").Patch(t.Context(), name, types.MergePatchType, rules, metav1.PatchOptions{}))(t)
	delivered(readAll)

	if err := f.hub.RbacV1().ClusterRoles().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	present(metav1.ConditionFalse, "ClusterRole "+name)
	f.absent(t, object{"ClusterRole", "", name})
	f.present(t, object{"Role", "default", name}, object{"ClusterRoleBinding", "", cp.Name})
	must(f.hub.RbacV1().ClusterRoles().Create(t.Context(), clusterRole, metav1.CreateOptions{}))(t)
	present(metav1.ConditionTrue)
	f.present(t, object{"ClusterRole", "", name})

	if err := f.hub.RbacV1().Roles("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	present(metav1.ConditionFalse, "Role default/"+name)
	f.absent(t, object{"Role", "default", name})
}

// Bindings follow the accounts that they name, each by itself.
func TestPermissionFollowsAccounts(t *testing.T) {
	f := shared(t)
	const name, early, late = "follows-accounts", "follows-early", "follows-late"
	createAccount(t, f.ocm, account(cluster1, early))
	cp := permission(name)
	cp.Spec = rbacv1alpha1.ClusterPermissionSpec{
		ClusterRoleBindings: &[]rbacv1alpha1.ClusterRoleBinding{
			{Name: early, Subject: managedAccount(early), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
			{Name: late, Subject: managedAccount(late), RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
			{Name: name, Subjects: []rbacv1.Subject{*managedAccount(late), *user("alice")}, RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
		},
	}
	create(t, f.ocm, cp)
	boundTo := func(binding string, want ...rbacv1.Subject) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s binds %v", binding, want), func(ctx context.Context) error {
			got, err := f.managed.RbacV1().ClusterRoleBindings().Get(ctx, binding, metav1.GetOptions{})
			if err == nil && !slices.Equal(got.Subjects, want) {
				err = fmt.Errorf("it binds %v", got.Subjects)
			}
			return err
		})
	}
	absent := func() {
		t.Helper()
		cp := f.permissionSays(t, cluster1, name, rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionFalse, late+" does not exist")
		if conditionSays(cp, rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionFalse, early) == nil {
			t.Errorf("the account that is there is said to be absent as well: %v", cp.Status.Conditions)
		}
		boundTo(early, inNamespace(accountsNamespace, early))
		boundTo(name, *user("alice"))
		f.absent(t, object{"ClusterRoleBinding", "", late})
	}
	boundTo(early, inNamespace(accountsNamespace, early))
	absent()
	createAccount(t, f.ocm, account(cluster1, late))
	f.permissionSays(t, cluster1, name, rbacv1alpha1.ConditionSubjectPresent, metav1.ConditionTrue)
	boundTo(late, inNamespace(accountsNamespace, late))
	boundTo(name, inNamespace(accountsNamespace, late), *user("alice"))
	if err := f.ocm.AuthenticationV1beta1().ManagedServiceAccounts(cluster1).Delete(t.Context(), late, metav1.DeleteOptions{}); err != nil {
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
	ctx, clusters, permissions := t.Context(), f.ocm.ClusterV1().ManagedClusters(), f.ocm.RbacV1alpha1().ClusterPermissions(cluster)
	join := func() {
		t.Helper()
		if err := localhub.JoinCluster(ctx, f.Hub, cluster); err != nil {
			t.Fatal(err)
		}
	}
	// The hub's admission may take a new namespace for the one that was deleted, for a moment.
	permit := func() {
		t.Helper()
		cp := permission(name)
		cp.Namespace = cluster
		eventually(t, "a ClusterPermission is made", func(ctx context.Context) error {
			_, err := permissions.Create(ctx, cp, metav1.CreateOptions{})
			return err
		})
		eventually(t, "its work is there", func(ctx context.Context) error {
			works, err := f.ocm.WorkV1().ManifestWorks(cluster).List(ctx, metav1.ListOptions{})
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
		eventually(t, "the ManagedCluster is gone", func(ctx context.Context) error {
			_, err := clusters.Get(ctx, cluster, metav1.GetOptions{})
			return isGone(err)
		})
		_, err := f.hub.CoreV1().Namespaces().Get(ctx, cluster, metav1.GetOptions{})
		if err := isGone(err); err != nil {
			t.Errorf("its namespace is not: %v", err)
		}
		for what, left := range map[string]func() (int, error){
			"ClusterPermissions": func() (int, error) {
				list, err := permissions.List(ctx, metav1.ListOptions{})
				return len(list.Items), err
			},
			"ManifestWorks": func() (int, error) {
				list, err := f.ocm.WorkV1().ManifestWorks(cluster).List(ctx, metav1.ListOptions{})
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
	cp := permission("for-nobody")
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
	createRole(t, f.hub, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-reader"}, Rules: readPods})
	createClusterRole(t, f.hub, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "secret-reader"}, Rules: readAll})
	samples := map[string]string{"my-managed-rbac": "testdata/seed-001.yaml", "my-managed-rbac-with-refs": "testdata/seed-001-rolerefs.yaml"}
	for name, file := range samples {
		deleteLater(t, f.ocm, cluster1, name)
		if out, err := f.kubectl(t, "", "apply", "-f", file); err != nil {
			t.Fatalf("kubectl apply -f %s: %v\n%s", file, err, out)
		}
	}
	f.permissionSays(t, cluster1, "my-managed-rbac", rbacv1alpha1.ConditionFullyDelivered, metav1.ConditionFalse)
	createAccount(t, f.ocm, account(cluster1, "managed-sa-sample"))
	f.createNamespace(t, "sample-of-the-proposal", map[string]string{"foo.com/managed-state": "managed"})

	for name := range samples {
		eventually(t, "all conditions of "+name+" are True", func(ctx context.Context) error {
			cp, err := f.get(ctx, name)
			if err != nil {
				return err
			}
			if err := hasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue); err != nil {
				return err
			}
			return allTrue(cp)
		})
	}
	f.present(t, object{"Role", "sample-of-the-proposal", "my-managed-rbac"}, object{"RoleBinding", "sample-of-the-proposal", "my-managed-rbac"},
		object{"RoleBinding", "kube-system", "my-managed-rbac"}, object{"Role", "default", "pod-reader"}, object{"ClusterRole", "", "secret-reader"})
	binding := must(f.managed.RbacV1().RoleBindings("kube-system").Get(t.Context(), "my-managed-rbac", metav1.GetOptions{}))(t)
	if want := []rbacv1.Subject{inNamespace(accountsNamespace, "managed-sa-sample")}; !slices.Equal(binding.Subjects, want) {
		t.Errorf("the account's binding is for %v, not %v", binding.Subjects, want)
	}
	// Other tests have the same sample.
	for name := range samples {
		f.deletePermission(t, must(f.get(t.Context(), name))(t))
	}
	f.absent(t, object{"ClusterRole", "", "my-managed-rbac"}, object{"Role", "default", "my-managed-rbac"}, object{"ClusterRole", "", "secret-reader"})
}
