package permission

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestDeletionCascades(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			name := "cascade-" + map[metav1.DeletionPropagation]string{
				metav1.DeletePropagationBackground: "background", metav1.DeletePropagationForeground: "foreground"}[policy]
			framework.CreatePermission(t, f.OCM, framework.Permission(name))
			f.Applied(t, name)
			if err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			framework.Eventually(t, "ClusterPermission "+name+" does not exist", func(ctx context.Context) error {
				_, err := f.GetPermission(ctx, name)
				return framework.IsGone(err)
			})
			f.NoWorks(t, name)
			f.Absent(t, framework.ObjectsOf(name)...)
		})
	}
}

// TestDeletionOrphans checks that orphaning keeps the ManifestWork and the objects that it delivers.
func TestDeletionOrphans(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "orphaning"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	cp := f.Applied(t, name)
	err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ClusterPermission "+name+" does not exist", func(ctx context.Context) error {
		_, err := f.GetPermission(ctx, name)
		return framework.IsGone(err)
	})
	// The later deletion of this object proves that the earlier one was processed.
	framework.CreatePermission(t, f.OCM, framework.Permission("orphaning-marker"))
	f.Applied(t, "orphaning-marker")
	if err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), "orphaning-marker", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Absent(t, framework.ObjectsOf("orphaning-marker")...)

	work := framework.Must(f.GetWork(t.Context(), cp))(t)
	if work.DeletionTimestamp != nil || len(work.OwnerReferences) > 0 {
		t.Errorf("ManifestWork has deletionTimestamp %v and ownerReferences %v, want neither", work.DeletionTimestamp, work.OwnerReferences)
	}
	f.Present(t, framework.ObjectsOf(name)...)
	if err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), work.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Absent(t, framework.ObjectsOf(name)...)
}

// TestDeletionOfTheHubNamespace checks that the deletion of a cluster's namespace on the hub
// removes all delivered objects. The hub still accepts the cluster, so it creates the namespace
// again.
func TestDeletionOfTheHubNamespace(t *testing.T) {
	f := shared(t)
	names := []string{"in-namespace-0", "in-namespace-1", "in-namespace-2"}
	for _, name := range names {
		framework.CreatePermission(t, f.OCM, framework.Permission(name))
	}
	for _, name := range names {
		f.Applied(t, name)
	}
	former, err := f.HubClient.CoreV1().Namespaces().Get(t.Context(), framework.Cluster1, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.HubClient.CoreV1().Namespaces().Delete(t.Context(), framework.Cluster1, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the hub has a new namespace "+framework.Cluster1, func(ctx context.Context) error {
		namespace, err := f.HubClient.CoreV1().Namespaces().Get(ctx, framework.Cluster1, metav1.GetOptions{})
		if err == nil && namespace.UID == former.UID {
			return fmt.Errorf("the previous namespace still exists with conditions %v", namespace.Status.Conditions)
		}
		return err
	})
	for _, name := range names {
		f.NoWorks(t, name)
		f.Absent(t, framework.ObjectsOf(name)...)
	}
	// For a short time, the hub's admission may still see the previous namespace.
	framework.Eventually(t, "ClusterPermission joined-again is created in the new namespace", func(ctx context.Context) error {
		_, err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(ctx, framework.Permission("joined-again"), metav1.CreateOptions{})
		return err
	})
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, "joined-again")
	f.Applied(t, "joined-again")
}
