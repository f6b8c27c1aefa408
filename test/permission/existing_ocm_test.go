package permission

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	authenticationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
	"open-cluster-management.io/hub-apiserver/test/localhub"
)

// overlaid is a hub that runs OCM, with our server in the configuration of
// artifacts/deploy/existing-ocm.
type overlaid struct {
	*fleet
	cluster *localhub.Cluster
	server  *localhub.APIServer
}

// TestHubThatRunsOCM checks a hub that accepts all ClusterPermissions that it accepted before our server was installed.
// It stores ManagedServiceAccounts itself.
func TestHubThatRunsOCM(t *testing.T) {
	t.Parallel()
	cluster, server := framework.HubThatRunsOCM(t, authenticationv1beta1.SchemeGroupVersion, authenticationv1alpha1.SchemeGroupVersion)
	o := &overlaid{cluster: cluster, server: server, fleet: &fleet{&framework.Fleet{
		OCM: framework.OCMClient(t, cluster.AdminConfig(), nil), HubClient: framework.Must(kubernetes.NewForConfig(cluster.AdminConfig()))(t),
	}}}
	t.Run("ManifestWorks are stored by the hub", o.storesWorks)
	t.Run("ManagedServiceAccounts are stored by the hub", o.storesAccounts)
	t.Run("the namespace of an add-on changes", o.addOnMovesFast)
	t.Run("users without permission to grant receive warnings", o.warns)
	t.Run("selectors select the hub's namespaces", o.selects)
	t.Run("reports while the server is down", o.reportsWhileDown)
	t.Run("ManifestWorks name an executor", o.executes)
	t.Run("condition Validation clears", o.clearsCondition)
}

// storesWorks checks that the ManifestWorks of ClusterPermissions are stored in the hub's own
// CustomResourceDefinition.
func (o *overlaid) storesWorks(t *testing.T) {
	ctx, ocm := t.Context(), o.OCM
	cp := framework.CreatePermission(t, ocm, framework.Permission("on-an-ocm-hub"))
	var work *workv1.ManifestWork
	framework.Eventually(t, "the hub stores the ManifestWork of ClusterPermission "+cp.Name, func(ctx context.Context) error {
		works, err := framework.WorksOf(ctx, ocm, cp.Name)
		if err != nil {
			return err
		}
		if len(works) != 1 {
			return fmt.Errorf("ManifestWorks = %d, want 1", len(works))
		}
		work = &works[0]
		return nil
	})

	// The ClusterPermission contains the reports of the upstream OCM agent.
	work.Status.Conditions = []metav1.Condition{{
		Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestWorkComplete,
		LastTransitionTime: metav1.Now(), ObservedGeneration: work.Generation,
	}}
	if _, err := ocm.WorkV1().ManifestWorks(framework.Cluster1).UpdateStatus(ctx, work, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ClusterPermission "+cp.Name+" has condition AppliedRBACManifestWork=True", func(ctx context.Context) error {
		cp, err := ocm.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Get(ctx, cp.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
	})

	// The hub stores keys in another order than the server renders them. This must not cause repeated
	// writes.
	settled := framework.Must(ocm.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, work.Name, metav1.GetOptions{}))(t)
	if settled.Generation != work.Generation {
		t.Errorf("generation of the ManifestWork = %d, want %d", settled.Generation, work.Generation)
	}
	if err := ocm.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(ctx, cp.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ManifestWork "+work.Name+" does not exist", func(ctx context.Context) error {
		_, err := ocm.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, work.Name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
}

// reportsWhileDown checks defect 8: reports of an agent during an outage of the server take effect after
// the restart.
func (o *overlaid) reportsWhileDown(t *testing.T) {
	f, server := o.fleet, o.server
	cp := framework.CreatePermission(t, f.OCM, framework.Permission("server-down"))
	f.PermissionSays(t, framework.Cluster1, cp.Name, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionFalse, "has not reported")
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	const note = "reported to nobody"
	work := f.WorkOf(t, cp)
	framework.MarkApplied(work, note)
	framework.Must(f.OCM.WorkV1().ManifestWorks(framework.Cluster1).UpdateStatus(t.Context(), work, metav1.UpdateOptions{}))(t)
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the condition of the ClusterPermission contains the agent's report", func(ctx context.Context) error {
		cp, err := f.GetPermission(ctx, cp.Name)
		if err != nil {
			return err
		}
		return framework.ConditionSays(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue, note)
	})
}
