package permission

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
	"open-cluster-management.io/hub-apiserver/test/framework"
)

func TestHandEditedWorkIsRestored(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "edited-work"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	cp := f.Applied(t, name)
	works := f.OCM.WorkV1().ManifestWorks(framework.Cluster1)
	want := framework.Must(f.GetWork(t.Context(), cp))(t)
	if _, err := works.Patch(t.Context(), want.Name, types.MergePatchType, []byte(`{"spec":{"workload":{"manifests":[`+
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"smuggled","namespace":"default"}}]}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the ManifestWork has its original spec", func(ctx context.Context) error {
		got, err := f.GetWork(ctx, cp)
		if err == nil && !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
			return fmt.Errorf("spec = %d manifests, want the original %d", len(got.Spec.Workload.Manifests), len(want.Spec.Workload.Manifests))
		}
		return err
	})
	framework.Eventually(t, "ConfigMap smuggled does not exist", func(ctx context.Context) error {
		_, err := f.ManagedClient.CoreV1().ConfigMaps("default").Get(ctx, "smuggled", metav1.GetOptions{})
		return framework.IsGone(err)
	})
	f.Present(t, framework.ObjectsOf(name)...)
	f.Applied(t, name)
}

func TestHandDeletedWorkIsRestored(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "deleted-work"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	cp := f.Applied(t, name)
	old := framework.Must(f.GetWork(t.Context(), cp))(t)
	if err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "a new ManifestWork exists", func(ctx context.Context) error {
		work, err := f.GetWork(ctx, cp)
		if err == nil && work.UID == old.UID {
			return fmt.Errorf("the deleted ManifestWork still exists with finalizers %v", work.Finalizers)
		}
		return err
	})
	f.Present(t, framework.ObjectsOf(name)...)
	f.Applied(t, name)
}

func TestDriftOnTheManagedClusterIsRestored(t *testing.T) {
	t.Parallel()
	f := shared(t)
	const name = "drift"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	f.Applied(t, name)
	rbac := f.ManagedClient.RbacV1()

	if _, err := rbac.ClusterRoles().Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "ClusterRole "+name+" has its original rules", func(ctx context.Context) error {
		role, err := rbac.ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err == nil && !equality.Semantic.DeepEqual(role.Rules, framework.ReadAll) {
			return fmt.Errorf("rules = %v", role.Rules)
		}
		return err
	})
	for _, o := range framework.ObjectsOf(name) {
		old := framework.Must(framework.ReadObject(t.Context(), f.ManagedClient, o))(t)
		var err error
		switch o.Kind {
		case "ClusterRole":
			err = rbac.ClusterRoles().Delete(t.Context(), name, metav1.DeleteOptions{})
		case "ClusterRoleBinding":
			err = rbac.ClusterRoleBindings().Delete(t.Context(), name, metav1.DeleteOptions{})
		case "Role":
			err = rbac.Roles(o.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		case "RoleBinding":
			err = rbac.RoleBindings(o.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		framework.Eventually(t, o.String()+" is created again", func(ctx context.Context) error {
			found, err := framework.ReadObject(ctx, f.ManagedClient, o)
			if err == nil && found.GetUID() == old.GetUID() {
				return fmt.Errorf("the deleted object still exists")
			}
			return err
		})
	}
	f.Applied(t, name)
}

// versions returns the resource versions of a ClusterPermission, its ManifestWork and its objects
// on the managed cluster.
func (f *fleet) versions(t *testing.T, name string) map[string]string {
	t.Helper()
	cp := framework.Must(f.GetPermission(t.Context(), name))(t)
	out := map[string]string{"ClusterPermission": cp.ResourceVersion}
	out["ManifestWork"] = framework.Must(f.GetWork(t.Context(), cp))(t).ResourceVersion
	for _, o := range framework.ObjectsOf(name) {
		out[o.String()] = framework.Must(framework.ReadObject(t.Context(), f.ManagedClient, o))(t).GetResourceVersion()
	}
	return out
}

// settled waits until all changes of a ClusterPermission are processed, and returns its versions.
// To do so, it waits until the ClusterPermission, and another one that is created and deleted
// later, are processed.
func (f *fleet) settled(t *testing.T, name string) map[string]string {
	t.Helper()
	f.Applied(t, name)
	marker := framework.Permission(name + "-marker")
	framework.DeletePermissionLater(t, f.OCM, framework.Cluster1, marker.Name)
	if _, err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Create(t.Context(), marker, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Applied(t, marker.Name)
	if err := f.OCM.RbacV1alpha1().ClusterPermissions(framework.Cluster1).Delete(t.Context(), marker.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.Absent(t, framework.ObjectsOf(marker.Name)...)
	f.NoWorks(t, marker.Name)
	return f.versions(t, name)
}

// TestNothingIsWrittenWhenNothingChanged checks that neither an update without a change nor a
// restart of our processes writes an object that is up to date.
func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	f := shared(t)
	const name = "quiet"
	framework.CreatePermission(t, f.OCM, framework.Permission(name))
	before := f.settled(t, name)
	unchanged := func(after string) {
		t.Helper()
		for what, version := range f.settled(t, name) {
			if version != before[what] {
				t.Errorf("resourceVersion of %s after %s = %s, want %s", what, after, version, before[what])
			}
		}
	}

	f.update(t, name, func(*rbacv1alpha1.ClusterPermission) {})
	unchanged("an update without a change")

	// An unknown annotation changes the metadata of the ManifestWork, but not its spec.
	work := render.WorkName(framework.Must(f.GetPermission(t.Context(), name))(t))
	if _, err := f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Patch(t.Context(), work, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"looked-at":"by hand"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	before["ManifestWork"] = framework.Must(f.OCM.WorkV1().ManifestWorks(framework.Cluster1).Get(t.Context(), work, metav1.GetOptions{}))(t).ResourceVersion
	unchanged("an annotation of the ManifestWork")

	if err := f.Server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "the hub serves our API again", func(ctx context.Context) error {
		_, err := f.GetPermission(ctx, name)
		return err
	})
	unchanged("a restart of the server")

	if err := f.Members[0].Agent.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	unchanged("a restart of the agent")
}
