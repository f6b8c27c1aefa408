package conformance

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	rbacv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/rbac/v1alpha1"
)

// kubectlChecks are the checks with kubectl. A process for each request of each kind takes minutes, so TestKubectl runs
// them for one kind, and only the long tests for all. The other tests of this package make the same requests of each
// kind with a client.
var kubectlChecks = []struct {
	name  string
	check func(*testing.T, *place)
}{
	{"Get", kubectlGet},
	{"Watch", kubectlWatch},
	{"ListsInChunks", kubectlListsInChunks},
	{"ClientSideApply", kubectlClientSideApply},
	{"ServerSideApply", kubectlServerSideApply},
	{"Patch", kubectlPatch},
	{"Edit", kubectlEdit},
	{"Delete", kubectlDelete},
	{"DryRun", kubectlDryRun},
	{"StrictFields", kubectlStrictFields},
}

// ofPermissions reports whether a kind is that of ClusterPermissions.
func ofPermissions(k kind) bool {
	return k.version == rbacv1alpha1.SchemeGroupVersion && k.Kind == "ClusterPermission"
}

func TestKubectl(t *testing.T) {
	for _, c := range kubectlChecks {
		t.Run(c.name, func(t *testing.T) {
			forEachOf(t, slices.DeleteFunc(kinds(), func(k kind) bool { return !ofPermissions(k) }), c.check)
		})
	}
}

func TestKubectlOfEveryKind(t *testing.T) {
	for _, c := range kubectlChecks {
		t.Run(c.name, func(t *testing.T) { forEachOf(t, slices.DeleteFunc(kinds(), ofPermissions), c.check) })
	}
}

// TestApply checks server-side apply by two managers.
func TestApply(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		object := p.object(t)
		name := object.GetName()
		object.SetLabels(map[string]string{placeLabel: p.label, "owner": "first"})
		apply := func(object *unstructured.Unstructured, manager string, force bool) (*unstructured.Unstructured, error) {
			return p.client.Apply(t.Context(), name, object, metav1.ApplyOptions{FieldManager: manager, Force: force})
		}
		must := func(object *unstructured.Unstructured, manager string, force bool) *unstructured.Unstructured {
			t.Helper()
			applied, err := apply(object, manager, force)
			if err != nil {
				t.Fatalf("Apply() by %s: %v", manager, err)
			}
			return applied
		}
		wantContains(t, manager(t, must(object, "first", false), "first", ""), `"f:spec"`, `"f:owner"`)
		other := p.bare(name, map[string]any{"owner": "second"})
		if _, err := apply(other, "second", false); !apierrors.IsConflict(err) {
			t.Errorf("Apply() of a field of another manager = %v, want 409", err)
		} else {
			wantContains(t, err.Error(), `conflict with "first"`, ".metadata.labels.owner")
		}
		if got := must(other, "second", true).GetLabels()["owner"]; got != "second" {
			t.Errorf("label owner after a forced Apply() = %q, want second", got)
		}
		if got, want := must(p.changed(t, object), "first", true).GetGeneration(), p.generation(t, 1); got != want {
			t.Errorf("generation after a change = %d, want %d", got, want)
		}
		// A field is removed when its only manager no longer applies it.
		object.SetLabels(map[string]string{placeLabel: p.label})
		must(object, "first", false)
		if labels := must(p.bare(name, map[string]any{}), "second", false).GetLabels(); labels["owner"] != "" {
			t.Errorf("labels = %v, want no owner", labels)
		}
	})
}

// TestDryRun checks that a dry run returns the same answer as a write and stores nothing.
func TestDryRun(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		dryRun := []string{metav1.DryRunAll}
		absent := p.object(t)
		created, err := p.client.Create(t.Context(), absent, metav1.CreateOptions{DryRun: dryRun})
		if err != nil || created.GetUID() == "" {
			t.Errorf("Create() as a dry run = %v, %v, want an object with a UID", created, err)
		}
		if _, err := p.client.Apply(t.Context(), absent.GetName(), absent, metav1.ApplyOptions{FieldManager: "dry", DryRun: dryRun}); err != nil {
			t.Errorf("Apply() as a dry run = %v, want nil", err)
		}
		p.wantNothing(t)

		before := p.create(t)
		name := before.GetName()
		applied, err := p.client.Apply(t.Context(), name, p.changed(t, p.named(t, name)), metav1.ApplyOptions{FieldManager: "dry", Force: true, DryRun: dryRun})
		if err != nil {
			t.Fatal(err)
		}
		if want := p.generation(t, 1); applied.GetGeneration() != want {
			t.Errorf("generation in the answer to a dry-run Apply() = %d, want %d", applied.GetGeneration(), want)
		}
		if err := p.client.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: dryRun}); err != nil {
			t.Errorf("Delete() as a dry run = %v, want nil", err)
		}
		after := p.get(t, name)
		if after.GetGeneration() != 1 || after.GetDeletionTimestamp() != nil || after.GetUID() != before.GetUID() {
			t.Errorf("metadata after dry-run requests = %v, want no change", after.Object["metadata"])
		}
	})
}

// TestStrictFields checks that strict field validation names an unknown field.
func TestStrictFields(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		object := p.object(t)
		if err := unstructured.SetNestedField(object.Object, "x", "spec", "surprise"); err != nil {
			t.Fatal(err)
		}
		_, err := p.client.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if !apierrors.IsBadRequest(err) {
			t.Fatalf("Create() with an unknown field = %v, want 400", err)
		}
		wantContains(t, err.Error(), `unknown field "spec.surprise"`)
	})
}
