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
			framework.Eventually(t, "the ClusterPermission is gone", func(ctx context.Context) error {
				_, err := f.GetPermission(ctx, name)
				return framework.IsGone(err)
			})
			f.NoWorks(t, name)
			f.Absent(t, framework.ObjectsOf(name)...)
		})
	}
}

// Orphaning leaves the work, and with it what it delivers, to whoever asked for it.
func TestDeletionOrphans(t *testing.T) {
	f := shared(t)
	const name = "orphaning"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	cp := f.Applied(t, name)
	err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
	if err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the ClusterPermission is gone", func(ctx context.Context) error {
		_, err := f.GetPermission(ctx, name)
		return framework.IsGone(err)
	})
	// What is deleted after it and is gone shows that it would be gone, too.
	framework.CreatePermission(t, f.OCM, framework.Permission("orphaning-marker"))
	f.Applied(t, "orphaning-marker")
	if err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), "orphaning-marker", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Absent(t, framework.ObjectsOf("orphaning-marker")...)

	work := framework.Must(f.GetWork(t.Context(), cp))(t)
	if work.DeletionTimestamp != nil || len(work.OwnerReferences) > 0 {
		t.Errorf("the work is deleted at %v, or has owners %v", work.DeletionTimestamp, work.OwnerReferences)
	}
	f.Present(t, framework.ObjectsOf(name)...)
	if err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), work.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Absent(t, framework.ObjectsOf(name)...)
}

// Deleting the hub namespace of a cluster takes everything with it. Since the hub goes
// on accepting the cluster, it gets a new one.
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
	framework.Eventually(t, "the cluster has a new namespace", func(ctx context.Context) error {
		namespace, err := f.HubClient.CoreV1().Namespaces().Get(ctx, framework.Cluster1, metav1.GetOptions{})
		if err == nil && namespace.UID == former.UID {
			return fmt.Errorf("it has the former one, with the conditions %v", namespace.Status.Conditions)
		}
		return err
	})
	for _, name := range names {
		f.NoWorks(t, name)
		f.Absent(t, framework.ObjectsOf(name)...)
	}
	// For a moment, the hub's admission may still take the new namespace for the old one.
	framework.Eventually(t, "a ClusterPermission can be made in it", func(ctx context.Context) error {
		_, err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(ctx, framework.Permission("joined-again"), metav1.CreateOptions{})
		return err
	})
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, "joined-again")
	f.Applied(t, "joined-again")
}
