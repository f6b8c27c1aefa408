package integration_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
	render "open-cluster-management.io/hub-apiserver/pkg/render/clusterpermission"
)

func TestHandEditedWorkIsRestored(t *testing.T) {
	f := shared(t)
	const name = "edited-work"
	create(t, f.ocm, permission(name))
	cp := f.applied(t, name)
	works := f.ocm.WorkV1().ManifestWorks(cluster1)
	want := must(f.work(t.Context(), cp))(t)
	if _, err := works.Patch(t.Context(), want.Name, types.MergePatchType, []byte(`{"spec":{"workload":{"manifests":[`+
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"smuggled","namespace":"default"}}]}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the work is as it was", func(ctx context.Context) error {
		got, err := f.work(ctx, cp)
		if err == nil && !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
			return fmt.Errorf("it has %d manifests", len(got.Spec.Workload.Manifests))
		}
		return err
	})
	eventually(t, "what was smuggled in is gone", func(ctx context.Context) error {
		_, err := f.managed.CoreV1().ConfigMaps("default").Get(ctx, "smuggled", metav1.GetOptions{})
		return isGone(err)
	})
	f.present(t, objectsOf(name)...)
	f.applied(t, name)
}

func TestHandDeletedWorkIsRestored(t *testing.T) {
	f := shared(t)
	const name = "deleted-work"
	create(t, f.ocm, permission(name))
	cp := f.applied(t, name)
	old := must(f.work(t.Context(), cp))(t)
	if err := f.ocm.WorkV1().ManifestWorks(cluster1).Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is a new work", func(ctx context.Context) error {
		work, err := f.work(ctx, cp)
		if err == nil && work.UID == old.UID {
			return fmt.Errorf("it is the old one, finalizers %v", work.Finalizers)
		}
		return err
	})
	f.present(t, objectsOf(name)...)
	f.applied(t, name)
}

func TestDriftOnTheManagedClusterIsRestored(t *testing.T) {
	f := shared(t)
	const name = "drift"
	create(t, f.ocm, permission(name))
	f.applied(t, name)
	rbac := f.managed.RbacV1()

	if _, err := rbac.ClusterRoles().Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the edited ClusterRole is restored", func(ctx context.Context) error {
		role, err := rbac.ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err == nil && !equality.Semantic.DeepEqual(role.Rules, readAll) {
			return fmt.Errorf("its rules are %v", role.Rules)
		}
		return err
	})
	for _, o := range objectsOf(name) {
		old := must(read(t.Context(), f.managed, o))(t)
		var err error
		switch o.kind {
		case "ClusterRole":
			err = rbac.ClusterRoles().Delete(t.Context(), name, metav1.DeleteOptions{})
		case "ClusterRoleBinding":
			err = rbac.ClusterRoleBindings().Delete(t.Context(), name, metav1.DeleteOptions{})
		case "Role":
			err = rbac.Roles(o.namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		case "RoleBinding":
			err = rbac.RoleBindings(o.namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, o.String()+" exists again", func(ctx context.Context) error {
			found, err := read(ctx, f.managed, o)
			if err == nil && found.GetUID() == old.GetUID() {
				return fmt.Errorf("it has not been deleted yet")
			}
			return err
		})
	}
	f.applied(t, name)
}

// versions are the resource versions of a ClusterPermission and everything
// that follows from it.
func (f *fleet) versions(t *testing.T, name string) map[string]string {
	t.Helper()
	cp := must(f.get(t.Context(), name))(t)
	out := map[string]string{"ClusterPermission": cp.ResourceVersion}
	out["ManifestWork"] = must(f.work(t.Context(), cp))(t).ResourceVersion
	for _, o := range objectsOf(name) {
		out[o.String()] = must(read(t.Context(), f.managed, o))(t).GetResourceVersion()
	}
	return out
}

// settled waits until nothing that follows from a ClusterPermission changes any
// more: it, and another one that is changed after it, report that they are applied.
func (f *fleet) settled(t *testing.T, name string) map[string]string {
	t.Helper()
	f.applied(t, name)
	marker := permission(name + "-marker")
	deleteLater(t, f.ocm, cluster1, marker.Name)
	if _, err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Create(t.Context(), marker, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.applied(t, marker.Name)
	if err := f.ocm.RbacV1alpha1().ClusterPermissions(cluster1).Delete(t.Context(), marker.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.absent(t, objectsOf(marker.Name)...)
	f.noWorks(t, marker.Name)
	return f.versions(t, name)
}

// TestNothingIsWrittenWhenNothingChanged: neither applying again nor a restart of
// any of our processes writes an object that is as it should be.
func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	f := shared(t)
	const name = "quiet"
	create(t, f.ocm, permission(name))
	before := f.settled(t, name)
	unchanged := func(after string) {
		t.Helper()
		for what, version := range f.settled(t, name) {
			if version != before[what] {
				t.Errorf("%s was written by %s: %s became %s", what, after, before[what], version)
			}
		}
	}

	f.update(t, name, func(*rbacv1alpha1.ClusterPermission) {})
	unchanged("an update without a change")

	// An annotation that means nothing is a change of the work, and not of what it says.
	work := render.WorkName(must(f.get(t.Context(), name))(t))
	if _, err := f.ocm.WorkV1().ManifestWorks(cluster1).Patch(t.Context(), work, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"looked-at":"by hand"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	before["ManifestWork"] = must(f.ocm.WorkV1().ManifestWorks(cluster1).Get(t.Context(), work, metav1.GetOptions{}))(t).ResourceVersion
	unchanged("a look at everything again")

	if err := f.Server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hub serves our API again", func(ctx context.Context) error {
		_, err := f.get(ctx, name)
		return err
	})
	unchanged("a restart of the apiserver")

	if err := f.Members[0].Agent.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	unchanged("a restart of the agent")
}
