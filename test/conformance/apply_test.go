package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// bare returns an object of the kind that contains only its name and labels.
func (p *place) bare(name string, labels map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": labels}}}
	object.SetGroupVersionKind(p.gvk())
	object.SetName(name)
	object.SetNamespace(p.namespace)
	return object
}

// file writes an object to a file and returns its path.
func (p *place) file(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	content, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), object.GetName()+".yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func kubectlClientSideApply(t *testing.T, p *place) {
	object := p.object(t)
	wantContains(t, p.runWith(t, object, "apply", "--filename=-"), "created")
	wantContains(t, p.runWith(t, object, "apply", "--filename=-"), "unchanged")
	wantContains(t, p.runWith(t, p.changed(t, object), "apply", "--filename=-"), "configured")
	if got, want := p.get(t, object.GetName()).GetGeneration(), p.generation(t, 1); got != want {
		t.Errorf("generation after a change = %d, want %d", got, want)
	}
	// Client-side apply reverts a change that the file no longer contains.
	wantContains(t, p.runWith(t, object, "apply", "--filename=-"), "configured")
	if got, want := p.get(t, object.GetName()).GetGeneration(), p.generation(t, 2); got != want {
		t.Errorf("generation after the change is reverted = %d, want %d", got, want)
	}
}

func kubectlServerSideApply(t *testing.T, p *place) {
	object := p.object(t)
	name := object.GetName()
	object.SetLabels(map[string]string{placeLabel: p.label, "owner": "kubectl"})
	apply := []string{"apply", "--server-side", "--filename=-"}
	wantContains(t, p.runWith(t, object, apply...), "serverside-applied")
	// A controller may write the status between the two reads, so the check is repeated.
	await.Eventually(t, "applying the same object does not change it", func(context.Context) error {
		before := p.get(t, name).GetResourceVersion()
		p.runWith(t, object, apply...)
		if after := p.get(t, name).GetResourceVersion(); after != before {
			return fmt.Errorf("resourceVersion = %s, want %s as before", after, before)
		}
		return nil
	})
	manager := manager(t, p.get(t, name), "kubectl", "")
	wantContains(t, manager, `"f:spec"`, `"f:owner"`)

	other := p.bare(name, map[string]any{"owner": "other"})
	stderr := p.refused(t, other, append(apply, "--field-manager=other")...)
	wantContains(t, stderr, "conflict with \"kubectl\"", ".metadata.labels.owner")
	p.runWith(t, other, append(apply, "--field-manager=other", "--force-conflicts")...)
	if got := p.get(t, name).GetLabels()["owner"]; got != "other" {
		t.Errorf("label owner after --force-conflicts = %q, want other", got)
	}

	p.runWith(t, p.changed(t, object), append(apply, "--force-conflicts")...)
	if got, want := p.get(t, name).GetGeneration(), p.generation(t, 1); got != want {
		t.Errorf("generation after a change = %d, want %d", got, want)
	}
	// A field is removed when its only manager no longer applies it.
	object.SetLabels(map[string]string{placeLabel: p.label})
	p.runWith(t, object, apply...)
	p.runWith(t, p.bare(name, map[string]any{}), append(apply, "--field-manager=other")...)
	if labels := p.get(t, name).GetLabels(); labels["owner"] != "" {
		t.Errorf("labels = %v, want no owner", labels)
	}
}

// TestApplyOwnership checks that a manager that applies the object does not own the status, and
// that a manager that applies the status owns nothing else.
func TestApplyOwnership(t *testing.T) {
	forEachWithStatus(t, func(t *testing.T, p *place) {
		object := p.object(t)
		object.Object["status"] = p.statusReport("Ignored")
		applied, err := p.client.Apply(t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "spec-writer"})
		if err != nil {
			t.Fatal(err)
		}
		if reports(applied, "Ignored") {
			t.Errorf("status after apply of the object = %v, want no condition Ignored", applied.Object["status"])
		}
		if fields := manager(t, applied, "spec-writer", ""); strings.Contains(fields, "f:status") {
			t.Errorf("fields of spec-writer = %s, want no status", fields)
		}

		status := p.changed(t, object)
		status.SetLabels(map[string]string{"from": "status"})
		status.SetAnnotations(map[string]string{"from": "status"})
		status.Object["status"] = p.statusReport(conditionType)
		applied, err = p.client.ApplyStatus(t.Context(), object.GetName(), status, metav1.ApplyOptions{FieldManager: "status-writer"})
		if err != nil {
			t.Fatal(err)
		}
		if !reports(applied, conditionType) {
			t.Errorf("status after apply of the status = %v, want condition %s", applied.Object["status"], conditionType)
		}
		if applied.GetGeneration() != 1 || applied.GetLabels()["from"] != "" || applied.GetAnnotations()["from"] != "" {
			t.Errorf("metadata after apply of the status = %v, want no change", applied.Object["metadata"])
		}
		fields := manager(t, applied, "status-writer", "status")
		wantContains(t, fields, `"f:status"`)
		for _, foreign := range []string{"f:spec", "f:labels", "f:annotations"} {
			if strings.Contains(fields, foreign) {
				t.Errorf("fields of status-writer = %s, want no %s", fields, foreign)
			}
		}
	})
}

// manager returns the fields that a manager owns through server-side apply.
func manager(t *testing.T, object *unstructured.Unstructured, name, subresource string) string {
	t.Helper()
	entries := object.GetManagedFields()
	i := slices.IndexFunc(entries, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == name && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == subresource
	})
	if i < 0 {
		t.Fatalf("managedFields = %v, want an Apply entry of %s for subresource %q", entries, name, subresource)
	}
	return entries[i].FieldsV1.GetRawString()
}
