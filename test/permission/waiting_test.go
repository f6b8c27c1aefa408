package permission

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestWrittenBeforeTheClusterJoins checks that a ClusterPermission, a ManifestWork and a ManagedServiceAccount wait for
// their cluster, and that the ClusterPermission is delivered when the ManagedCluster is created.
func TestWrittenBeforeTheClusterJoins(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, later := t.Context(), "joins-later"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: later}}
	framework.Must(f.HubClient.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))(t)

	author := framework.NewCaller(t, f.Hub, "author-of-"+later)
	author.May(t, later, rbacv1.PolicyRule{APIGroups: []string{"rbac.open-cluster-management.io"}, Resources: []string{"clusterpermissions"}, Verbs: []string{"create"}})
	if _, err := author.OCM.RbacV1alpha1().ClusterPermissions(later).Create(ctx, framework.PermissionIn(later, "refused"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Create by a user who may not grant the rules = %v, want 403", err)
	}

	cp := framework.CreatePermission(t, f.OCM, framework.PermissionIn(later, "early"))
	f.PermissionSays(t, later, cp.Name, "RBACManifestWorkCreated", metav1.ConditionFalse, "is delivered when cluster", later)
	framework.CreateAccount(t, f.OCM, framework.NewAccount(later, "early"))
	f.AccountSays(t, later, "early", authenticationv1beta1.ConditionNamespaceManaged, metav1.ConditionFalse, authenticationv1beta1.ReasonNotManaged)
	work := framework.ConfigMapWork("early")
	work.Namespace = later
	framework.Must(f.OCM.WorkV1().ManifestWorks(later).Create(ctx, work, metav1.CreateOptions{}))(t)
	waits := func(want bool) {
		t.Helper()
		framework.Eventually(t, fmt.Sprintf("ManifestWork %s/early waits for its cluster is %t", later, want), func(ctx context.Context) error {
			work, err := f.OCM.WorkV1().ManifestWorks(later).Get(ctx, "early", metav1.GetOptions{})
			if err != nil {
				return err
			}
			applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
			if got := applied != nil && applied.Reason == workv1.ReasonWaitingForManagedCluster; got != want {
				return fmt.Errorf("conditions = %v", work.Status.Conditions)
			}
			return nil
		})
	}
	waits(true)

	framework.Must(f.OCM.ClusterV1().ManagedClusters().Create(ctx, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: later}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := f.OCM.ClusterV1().ManagedClusters().Delete(context.WithoutCancel(ctx), later, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	f.PermissionSays(t, later, cp.Name, "RBACManifestWorkCreated", metav1.ConditionTrue)
	f.WorkOf(t, cp)
	waits(false)
	framework.Eventually(t, "the account no longer waits", func(ctx context.Context) error {
		account, err := f.GetAccount(ctx, later, "early")
		if err == nil && meta.FindStatusCondition(account.Status.Conditions, authenticationv1beta1.ConditionNamespaceManaged) != nil {
			err = fmt.Errorf("conditions = %v", account.Status.Conditions)
		}
		return err
	})
}
