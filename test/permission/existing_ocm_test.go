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

// ManifestWorks of ClusterPermissions go where the hub keeps ManifestWorks.
func TestHubThatRunsOCM(t *testing.T) {
	t.Parallel()
	ctx, hub := t.Context(), framework.HubThatRunsOCM(t)
	ocm := framework.OCMClient(t, hub.AdminConfig(), nil)
	cp := framework.CreatePermission(t, ocm, framework.Permission("on-an-ocm-hub"))
	var work *workv1.ManifestWork
	framework.Eventually(t, "its work is in the hub's own store", func(ctx context.Context) error {
		works, err := framework.WorksOf(ctx, ocm, cp.Name)
		if err != nil {
			return err
		}
		if len(works) != 1 {
			return fmt.Errorf("there are %d works", len(works))
		}
		work = &works[0]
		return nil
	})

	// What OCM's own agent reports there reaches the ClusterPermission.
	work.Status.Conditions = []metav1.Condition{{
		Type: workv1.WorkApplied, Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestWorkComplete,
		LastTransitionTime: metav1.Now(), ObservedGeneration: work.Generation,
	}}
	if _, err := ocm.WorkV1().ManifestWorks(framework.Cluster1).UpdateStatus(ctx, work, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the ClusterPermission says that it is applied", func(ctx context.Context) error {
		cp, err := ocm.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Get(ctx, cp.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return framework.HasCondition(cp, rbacv1alpha1.ConditionAppliedRBACManifestWork, metav1.ConditionTrue)
	})

	// Nothing is written again and again: the hub's store keeps keys in another order than we render them.
	settled := framework.Must(ocm.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, work.Name, metav1.GetOptions{}))(t)
	if settled.Generation != work.Generation {
		t.Errorf("the work was written again: its generation went from %d to %d", work.Generation, settled.Generation)
	}
	if err := ocm.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(ctx, cp.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the work is gone", func(ctx context.Context) error {
		_, err := ocm.WorkV1().ManifestWorks(framework.Cluster1).Get(ctx, work.Name, metav1.GetOptions{})
		return framework.IsGone(err)
	})
}
