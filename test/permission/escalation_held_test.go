package permission

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// grantTo returns framework.Permission for another subject. It grants some rules cluster-wide, and
// others in the namespace default.
func grantTo(name string, subject rbacv1.Subject) *rbacv1alpha1.ClusterPermission {
	cp := framework.Permission(name)
	cp.Spec.ClusterRoleBinding.Subject = &subject
	(*cp.Spec.RoleBindings)[0].Subject = &subject
	return cp
}

// tries returns the error of a dry run that creates a ClusterPermission as a caller.
func tries(ctx context.Context, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission) error {
	_, err := c.Permissions().Create(ctx, cp, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// holds waits until our server allows a caller to grant the rules of framework.Permission, because
// the caller holds them.
func holds(t *testing.T, c *framework.Caller) {
	t.Helper()
	framework.Eventually(t, c.Name+" is allowed to grant the delivered permissions", func(ctx context.Context) error {
		return tries(ctx, c, framework.Permission("held-by-"+c.Name))
	})
}

// refusedForGood waits until a caller is no longer allowed to create a ClusterPermission, and
// checks that the denial is permanent.
func refusedForGood(t *testing.T, c *framework.Caller, cp *rbacv1alpha1.ClusterPermission, lines ...string) {
	t.Helper()
	framework.Eventually(t, c.Name+" is not allowed to create ClusterPermission "+cp.Name, func(ctx context.Context) error {
		if err := tries(ctx, c, cp); !apierrors.IsForbidden(err) {
			return fmt.Errorf("create = %v, want 403", err)
		}
		return nil
	})
	for range 20 {
		refusedFor(t, tries(t.Context(), c, cp), lines...)
	}
}

// TestHeldPermissionsCanBeGranted checks that a subject of delivered ClusterPermissions can grant
// their rules to others, as long as they are delivered.
func TestHeldPermissionsCanBeGranted(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const source = "held-source"
	alice := framework.NewCaller(t, f.Hub, "alice-holder").IsAdmin(t)
	refusedFor(t, tries(t.Context(), alice, framework.Permission("held-first")), missingOf("held-first")...)
	framework.CreatePermission(t, f.OCM, grantTo(source, alice.Subject))
	f.Applied(t, source)
	holds(t, alice)

	t.Run("the same rules", func(t *testing.T) {
		framework.CreatePermission(t, alice.OCM, framework.Permission("held-same"))
		f.Applied(t, "held-same")
		f.Present(t, framework.ObjectsOf("held-same")...)
	})
	t.Run("fewer rules", func(t *testing.T) {
		cp := framework.Permission("held-less")
		cp.Spec.ClusterRole.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"one"}, Verbs: []string{"get"}}}
		framework.CreatePermission(t, alice.OCM, cp)
		f.Applied(t, "held-less")
	})
	t.Run("a binding to the delivered role", func(t *testing.T) {
		cp := framework.Permission("held-bound")
		cp.Spec = rbacv1alpha1.ClusterPermissionSpec{ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{
			RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: source}, Subject: framework.UserSubject("bob"),
		}}
		if err := tries(t.Context(), alice, cp); err != nil {
			t.Errorf("create of a binding to ClusterRole %s = %v, want nil", source, err)
		}
	})
	t.Run("additional rules are denied", func(t *testing.T) {
		cp := framework.Permission("held-more")
		cp.Spec.ClusterRole.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "nodes", "secrets"}, Verbs: []string{"get", "delete"}}}
		_, err := alice.Permissions().Create(t.Context(), cp, metav1.CreateOptions{})
		const nodesAndPods, secrets = `{apiGroups: [""], resources: [nodes, pods], verbs: [delete]}`, `{apiGroups: [""], resources: [secrets], verbs: [delete, get]}`
		const bound = `spec.clusterRoleBinding, cluster-wide: ClusterRole "held-more" with `
		refusedFor(t, err, "spec.clusterRole, cluster-wide: "+nodesAndPods, "spec.clusterRole, cluster-wide: "+secrets, bound+nodesAndPods, bound+secrets)
		f.notStored(t, cp.Name)
	})
	t.Run("other namespaces are denied", func(t *testing.T) {
		// alice is allowed to list pods in one namespace, and to get them in all namespaces.
		cp := framework.Permission("held-elsewhere")
		(*cp.Spec.Roles)[0].Namespace, (*cp.Spec.RoleBindings)[0].Namespace = "kube-system", "kube-system"
		const listPods = `{apiGroups: [""], resources: [pods], verbs: [list]}`
		refusedFor(t, tries(t.Context(), alice, cp), `spec.roles[0], in namespace "kube-system": `+listPods,
			`spec.roleBindings[0], in namespace "kube-system": Role "held-elsewhere" in namespace "kube-system" with `+listPods)
		everywhere := framework.Permission("held-everywhere")
		everywhere.Spec.ClusterRole.Rules = framework.ReadPods
		refusedFor(t, tries(t.Context(), alice, everywhere), "spec.clusterRole, cluster-wide: "+listPods,
			`spec.clusterRoleBinding, cluster-wide: ClusterRole "held-everywhere" with `+listPods)
	})
	t.Run("a role that was not delivered is denied", func(t *testing.T) {
		cp := framework.Permission("held-view")
		cp.Spec = rbacv1alpha1.ClusterPermissionSpec{ClusterRoleBinding: &rbacv1alpha1.ClusterRoleBinding{
			RoleRef: &rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}, Subject: framework.UserSubject("bob"),
		}}
		refusedFor(t, tries(t.Context(), alice, cp), `spec.clusterRoleBinding, cluster-wide: ClusterRole "view": its rules are unknown or may change`)
	})
	t.Run("other users are denied", func(t *testing.T) {
		mallory := framework.NewCaller(t, f.Hub, "mallory-holder").IsAdmin(t)
		refusedFor(t, tries(t.Context(), mallory, framework.Permission("held-mallory")), missingOf("held-mallory")...)
	})
	t.Run("removed rules are denied", func(t *testing.T) {
		f.update(t, source, func(cp *rbacv1alpha1.ClusterPermission) { cp.Spec.ClusterRole.Rules = framework.ReadPods })
		f.Applied(t, source)
		const nodes = `{apiGroups: [""], resources: [nodes], verbs: [get]}`
		refusedForGood(t, alice, framework.Permission("held-narrowed"), "spec.clusterRole, cluster-wide: "+nodes,
			`spec.clusterRoleBinding, cluster-wide: ClusterRole "held-narrowed" with `+nodes)
	})
	t.Run("rules of a deleted ClusterPermission are denied", func(t *testing.T) {
		if err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), source, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		refusedForGood(t, alice, framework.Permission("held-gone"), missingOf("held-gone")...)
		_, err := alice.Permissions().Create(t.Context(), framework.Permission("held-gone"), metav1.CreateOptions{})
		refusedFor(t, err, missingOf("held-gone")...)
		f.notStored(t, "held-gone")
	})
}

// TestOnlyAppliedPermissionsAreHeld checks that a subject does not hold the permissions of a
// ClusterPermission before the agent has applied them.
func TestOnlyAppliedPermissionsAreHeld(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const source = "held-late"
	namespace := "held-late-" + rand.String(5)
	alice := framework.NewCaller(t, f.Hub, "alice-late").IsAdmin(t)
	cp := grantTo(source, alice.Subject)
	(*cp.Spec.Roles)[0].Namespace, (*cp.Spec.RoleBindings)[0].Namespace = namespace, namespace
	framework.CreatePermission(t, f.OCM, cp)
	framework.Eventually(t, "ClusterPermission "+source+" has condition AppliedRBACManifestWork=False with reason AppliedManifestWorkFailed", func(ctx context.Context) error {
		cp, err := f.GetPermission(ctx, source)
		if err != nil {
			return err
		}
		if err := framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse); err != nil {
			return err
		}
		if reason := meta.FindStatusCondition(cp.Status.Conditions, rbacv1alpha1.ConditionAppliedRBACManifestWork).Reason; reason != "AppliedManifestWorkFailed" {
			return fmt.Errorf("reason = %s", reason)
		}
		return nil
	})
	granted := framework.Permission("held-too-early")
	refusedFor(t, tries(t.Context(), alice, granted), missingOf(granted.Name)...)

	t.Run("writes of the status have no effect", func(t *testing.T) {
		liar := framework.NewCaller(t, f.Hub, "status-writer").IsAdmin(t)
		liar.May(t, framework.Cluster1, rbacv1.PolicyRule{APIGroups: []string{rbacv1alpha1.GroupName}, Resources: []string{"clusterpermissions/status"}, Verbs: []string{"update", "patch"}})
		lie := `{"status":{"approval":{"approved":{"generation":1,"approvedBy":"root","approvedAt":"2020-01-01T00:00:00Z"},` +
			`"delivered":{"generation":1,"spec":{"clusterRole":{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}}}}}}`
		after := framework.Must(liar.Permissions().Patch(t.Context(), source, types.MergePatchType, []byte(lie), metav1.PatchOptions{}, "status"))(t)
		if after.Status.Approval != nil {
			t.Errorf("approval after a patch of the status = %v, want nil", after.Status.Approval)
		}
		after.Status.Approval = &rbacv1alpha1.Approval{Pending: &rbacv1alpha1.PendingGeneration{Generation: 1, RequestedBy: "root", RequestedAt: metav1.Now()}}
		after.ResourceVersion = ""
		if after := framework.Must(liar.Permissions().UpdateStatus(t.Context(), after, metav1.UpdateOptions{}))(t); after.Status.Approval != nil {
			t.Errorf("approval after an update of the status = %v, want nil", after.Status.Approval)
		}
		// An Applied condition of another generation than the delivered one has no effect.
		framework.Eventually(t, "the false condition is stored", func(ctx context.Context) error {
			cp, err := f.GetPermission(ctx, source)
			if err != nil {
				return err
			}
			condition := meta.FindStatusCondition(cp.Status.Conditions, rbacv1alpha1.ConditionAppliedRBACManifestWork)
			condition.Status, condition.ObservedGeneration = metav1.ConditionTrue, cp.Generation+1
			_, err = liar.Permissions().UpdateStatus(ctx, cp, metav1.UpdateOptions{})
			return err
		})
		for range 20 {
			refusedFor(t, tries(t.Context(), alice, granted), missingOf(granted.Name)...)
		}
		framework.Eventually(t, "the server has restored condition AppliedRBACManifestWork=False", func(ctx context.Context) error {
			cp, err := f.GetPermission(ctx, source)
			if err != nil {
				return err
			}
			return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse)
		})
	})

	t.Cleanup(func() {
		if err := f.ManagedClient.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := f.ManagedClient.CoreV1().Namespaces().Create(t.Context(), home, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Applied(t, source)
	framework.Eventually(t, "alice is allowed to grant the applied rules", func(ctx context.Context) error {
		granted := framework.Permission("held-in-time")
		granted.Spec.Roles, granted.Spec.RoleBindings = nil, nil
		return tries(ctx, alice, granted)
	})
}

// TestGroupsAndServiceAccountsAsSubjects checks that callers hold the permissions of their groups
// on the hub. ServiceAccounts of the hub hold no permissions on the managed cluster, even if it has
// ServiceAccounts of the same names.
func TestGroupsAndServiceAccountsAsSubjects(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const team, namespace, name = "team-holders", "default", "held-robot"
	member := framework.NewCaller(t, f.Hub, "group-member", team).IsAdmin(t)
	outsider := framework.NewCaller(t, f.Hub, "group-outsider", "another-team").IsAdmin(t)
	robot := framework.NewAccountCaller(t, f.Hub, namespace, name).IsAdmin(t)

	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	framework.CreatePermission(t, f.OCM, grantTo("held-by-group", group(team)))
	for source, subject := range map[string]rbacv1.Subject{
		"held-by-account":         robot.Subject,
		"held-by-account-user":    *framework.UserSubject(robot.Name),
		"held-by-accounts":        group("system:serviceaccounts"),
		"held-by-accounts-inside": group("system:serviceaccounts:" + namespace),
	} {
		framework.CreatePermission(t, f.OCM, grantTo(source, subject))
		f.Applied(t, source)
	}
	f.Applied(t, "held-by-group")
	holds(t, member)
	for _, c := range []*framework.Caller{outsider, robot} {
		refusedFor(t, tries(t.Context(), c, framework.Permission("held-subject")), missingOf("held-subject")...)
	}
}

// TestChangesWithoutPermissionToGrant checks that a caller without permission to grant can still
// change metadata and remove permissions.
func TestChangesWithoutPermissionToGrant(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "tended"
	alice := framework.NewCaller(t, f.Hub, "alice-tends").IsAdmin(t)
	original := framework.CreatePermission(t, f.OCM, framework.Permission(name))
	f.Applied(t, name)
	patch := func(content string) error {
		_, err := alice.Permissions().Patch(t.Context(), name, types.MergePatchType, []byte(content), metav1.PatchOptions{})
		return err
	}

	if err := patch(`{"metadata":{"labels":{"team":"a"},"annotations":{"why":"because"},"finalizers":["example.com/keep"]}}`); err != nil {
		t.Errorf("patch of labels, annotations and finalizers = %v, want nil", err)
	}
	if err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Fatal(err)
	}
	subjects := `{"spec":{"clusterRoleBinding":{"subject":null,"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"},` +
		`{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice-tends"}]}}}`
	refusedFor(t, patch(subjects), missingOf(name)[2])
	if err := patch(`{"spec":{"roles":null,"roleBindings":null}}`); err != nil {
		t.Fatalf("removal of roles and roleBindings = %v, want nil", err)
	}
	f.Absent(t, framework.NewObject("Role", "default", name), framework.NewObject("RoleBinding", "default", name))
	f.Applied(t, name)

	// The caller does not hold the removed permissions, so it is not allowed to grant them again.
	cp := framework.Must(f.GetPermission(t.Context(), name))(t)
	cp.Spec, cp.ResourceVersion = original.Spec, ""
	_, err := alice.Permissions().Update(t.Context(), cp, metav1.UpdateOptions{})
	missing := missingOf(name)
	refusedFor(t, err, slices.Delete(missing, 2, 3)[1:]...)

	if err := alice.Permissions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Absent(t, framework.ObjectsOf(name)...)
	_, err = alice.Permissions().Create(t.Context(), framework.Permission(name), metav1.CreateOptions{})
	refusedFor(t, err, missingOf(name)...)

	for _, name := range []string{"tended-1", "tended-2"} {
		cp := framework.Permission(name)
		cp.Labels = map[string]string{"tended": "together"}
		framework.CreatePermission(t, f.OCM, cp)
	}
	err = alice.Permissions().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "tended=together"})
	if err != nil {
		t.Errorf("DeleteCollection = %v, want nil", err)
	}
	f.Absent(t, append(framework.ObjectsOf("tended-1"), framework.ObjectsOf("tended-2")...)...)
}
