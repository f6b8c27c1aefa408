package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// Defect 3, see test/permission: if the server lacks permission to read a resource of the hub, only
// the ClusterPermissions that depend on the resource are affected.
func TestMissingPermissionAffectsDependentsOnly(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, localhub.FleetOptions{Clusters: []string{framework.Cluster1}, APIServerArgs: []string{"--namespace-selector-source=Hub"}})
	const name = "missing-permission"
	framework.CreateClusterRole(t, f.HubClient, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: framework.ReadPods})
	framework.CreateRole(t, f.HubClient, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Rules: framework.ReadPods})
	needy := map[string]*rbacv1alpha1.ClusterPermissionSpec{
		"roles":        {RoleRefs: &[]rbacv1alpha1.HubRoleRef{{Kind: "Role", Namespace: "default", Name: name}}},
		"clusterroles": {RoleRefs: &[]rbacv1alpha1.HubRoleRef{{Kind: "ClusterRole", Name: name}}},
		"namespaces": {RoleBindings: &[]rbacv1alpha1.RoleBinding{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}},
			RoleRef:           framework.RoleRefTo("ClusterRole", "view"), Subject: framework.UserSubject("alice"),
		}}},
	}
	generations := map[string]int64{}
	for resource, spec := range needy {
		cp := framework.CreatePermission(t, f.OCM, &rbacv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: "needs-" + resource}, Spec: *spec})
		generations[cp.Name] = f.WorkOf(t, f.Applied(t, cp.Name)).Generation
	}
	unchanged := func(t *testing.T) {
		t.Helper()
		for name, generation := range generations {
			if work := f.WorkOf(t, framework.Must(f.GetPermission(t.Context(), name))(t)); work.Generation != generation {
				t.Errorf("generation of the ManifestWork of %s = %d, want %d as before: %s", name, work.Generation, generation, framework.ToJSON(framework.Manifests(work)))
			}
		}
	}

	// A ClusterPermission that depends on the resource reports the missing permission, and its
	// delivered objects stay.
	says := func(t *testing.T, resource string) {
		t.Helper()
		f.PermissionSays(t, framework.Cluster1, "needs-"+resource, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse, resource)
		unchanged(t)
	}

	// The status would disclose namespaces to callers without permission to list them.
	t.Run("namespace selector without permission to list namespaces", func(t *testing.T) {
		granter := framework.NewCaller(t, f.Hub, "selects-blindly").IsAdmin(t).IsGranter(t)
		_, err := granter.Permissions().Create(t.Context(), &rbacv1alpha1.ClusterPermission{
			ObjectMeta: metav1.ObjectMeta{Namespace: framework.Cluster1, Name: "selects-blindly"}, Spec: *needy["namespaces"],
		}, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "resources: [namespaces], verbs: [list]") {
			t.Errorf("create with a namespace selector: error = %v, want 403 that names list on namespaces", err)
		}
		framework.CreatePermission(t, granter.OCM, framework.Permission("selects-nothing"))
	})
	t.Run("started without clusterroles", func(t *testing.T) {
		f.restartWithout(t, "clusterroles")
		f.missesPermission(t, "list clusterroles.rbac.authorization.k8s.io")
		f.delivers(t, "unrelated-to-clusterroles")
		says(t, "clusterroles")
	})
	t.Run("started without roles", func(t *testing.T) {
		f.restartWithout(t, "roles")
		f.missesPermission(t, "list roles.rbac.authorization.k8s.io")
		f.delivers(t, "unrelated-to-roles")
		says(t, "roles")
	})
	// Admission checks that the namespace of an object exists. Without permission to read namespaces,
	// the server rejects every write.
	t.Run("started without namespaces", func(t *testing.T) {
		f.restartWithout(t, "namespaces")
		f.missesPermission(t, "list namespaces")
		_, err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(t.Context(), framework.Permission("refused-meanwhile"), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("create without permission of the server to list namespaces: error = %v, want 403", err)
		}
		unchanged(t)
	})
	t.Run("permissions removed while the server runs", func(t *testing.T) {
		f.takeAway(t, "roles", "clusterroles", "namespaces")
		f.missesPermission(t, "list namespaces")
		f.delivers(t, "unrelated-to-all")
		unchanged(t)
		for name := range generations {
			f.Applied(t, name)
		}
	})
}

// delivers creates a ClusterPermission that depends on no resource of the hub, and waits until it is
// applied.
func (f *fleet) delivers(t *testing.T, name string) {
	t.Helper()
	framework.Eventually(t, "ClusterPermission "+name+" is created", func(ctx context.Context) error {
		_, err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(ctx, framework.Permission(name), metav1.CreateOptions{})
		return err
	})
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, name)
	f.Applied(t, name)
}

// restartWithout restarts the server without permission to read a resource of the hub. After the
// test, it restores the permission and restarts the server.
func (f *fleet) restartWithout(t *testing.T, resource string) {
	t.Helper()
	if err := f.Server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	giveBack := f.takeAway(t, resource)
	// Without the permission, the server serves but does not become ready.
	ready := f.Server.Ready
	f.Server.Ready = nil
	if err := f.Server.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := f.Server.Stop(ctx); err != nil {
			t.Error(err)
		}
		f.Server.Ready = ready
		if err := f.Server.Process.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	// This cleanup runs first: the server requires the permission to become ready.
	t.Cleanup(giveBack)
}

// takeAway removes the server's permission to read resources of the hub, until giveBack is called.
func (f *fleet) takeAway(t *testing.T, resources ...string) (giveBack func()) {
	t.Helper()
	roles := f.HubClient.RbacV1().ClusterRoles()
	set := func(rules []rbacv1.PolicyRule) {
		t.Helper()
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			ctx := context.WithoutCancel(t.Context())
			role, err := roles.Get(ctx, framework.ServerRole, metav1.GetOptions{})
			if err == nil {
				role.Rules = rules
				_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	role := framework.Must(roles.Get(t.Context(), framework.ServerRole, metav1.GetOptions{}))(t)
	less := role.DeepCopy()
	for i := range less.Rules {
		rule := &less.Rules[i]
		rule.Resources = slices.DeleteFunc(rule.Resources, func(resource string) bool { return slices.Contains(resources, resource) })
	}
	set(slices.DeleteFunc(less.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Resources) == 0 }))
	return func() { set(role.Rules) }
}

// missesPermission waits until the readiness check of the server reports a missing permission.
func (f *fleet) missesPermission(t *testing.T, what string) {
	t.Helper()
	direct := framework.Direct(t, f.Server).RESTClient()
	framework.Eventually(t, "/readyz/hub-permissions reports the missing permission "+what, func(ctx context.Context) error {
		body, err := direct.Get().AbsPath("/readyz/hub-permissions").DoRaw(ctx)
		if err == nil || !strings.Contains(string(body), what) {
			return fmt.Errorf("response = %q, error = %v", body, err)
		}
		return nil
	})
}
