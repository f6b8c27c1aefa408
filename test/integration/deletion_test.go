package integration_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestDeletionCascades(t *testing.T) {
	f := shared(t)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			name := "cascade-" + map[metav1.DeletionPropagation]string{
				metav1.DeletePropagationBackground: "background", metav1.DeletePropagationForeground: "foreground"}[policy]
			create(t, f.ocm, permission(name))
			f.applied(t, name)
			if err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the ClusterPermission is gone", func(ctx context.Context) error {
				_, err := f.get(ctx, name)
				return isGone(err)
			})
			f.noWorks(t, name)
			f.absent(t, objectsOf(name)...)
		})
	}
}

// Orphaning leaves the work, and with it what it delivers, to whoever asked for it.
func TestDeletionOrphans(t *testing.T) {
	f := shared(t)
	const name = "orphaning"
	create(t, f.ocm, permission(name))
	cp := f.applied(t, name)
	err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Delete(t.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ClusterPermission is gone", func(ctx context.Context) error {
		_, err := f.get(ctx, name)
		return isGone(err)
	})
	// What is deleted after it and is gone shows that it would be gone, too.
	create(t, f.ocm, permission("orphaning-marker"))
	f.applied(t, "orphaning-marker")
	if err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Delete(t.Context(), "orphaning-marker", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.absent(t, objectsOf("orphaning-marker")...)

	work := must(f.work(t.Context(), cp))(t)
	if work.DeletionTimestamp != nil || len(work.OwnerReferences) > 0 {
		t.Errorf("the work is deleted at %v, or has owners %v", work.DeletionTimestamp, work.OwnerReferences)
	}
	f.present(t, objectsOf(name)...)
	if err := f.ocm.WorkV1().ManifestWorks(cluster1).Delete(t.Context(), work.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.absent(t, objectsOf(name)...)
}

// Deleting the hub namespace of a cluster takes everything with it. Since the hub goes
// on accepting the cluster, it gets a new one.
func TestDeletionOfTheHubNamespace(t *testing.T) {
	f := shared(t)
	names := []string{"in-namespace-0", "in-namespace-1", "in-namespace-2"}
	for _, name := range names {
		create(t, f.ocm, permission(name))
	}
	for _, name := range names {
		f.applied(t, name)
	}
	former, err := f.hub.CoreV1().Namespaces().Get(t.Context(), cluster1, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.hub.CoreV1().Namespaces().Delete(t.Context(), cluster1, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster has a new namespace", func(ctx context.Context) error {
		namespace, err := f.hub.CoreV1().Namespaces().Get(ctx, cluster1, metav1.GetOptions{})
		if err == nil && namespace.UID == former.UID {
			return fmt.Errorf("it has the former one, with the conditions %v", namespace.Status.Conditions)
		}
		return err
	})
	for _, name := range names {
		f.noWorks(t, name)
		f.absent(t, objectsOf(name)...)
	}
	// For a moment, the hub's admission may still take the new namespace for the old one.
	eventually(t, "a ClusterPermission can be made in it", func(ctx context.Context) error {
		_, err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Create(ctx, permission("joined-again"), metav1.CreateOptions{})
		return err
	})
	deleteLater(t, f.ocm, cluster1, "joined-again")
	f.applied(t, "joined-again")
}
