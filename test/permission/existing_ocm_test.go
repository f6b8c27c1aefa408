package permission

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

// TestHubThatRunsOCM checks that the ManifestWorks of ClusterPermissions are stored in the hub's own
// CustomResourceDefinition.
func TestHubThatRunsOCM(t *testing.T) {
	t.Parallel()
	ctx, hub := t.Context(), framework.HubThatRunsOCM(t)
	ocm := framework.OCMClient(t, hub.AdminConfig(), nil)
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
