package conformance

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
)

// update changes an object with a PUT, and retries after a conflict.
func (p *place) update(t *testing.T, name string, change func(*unstructured.Unstructured) *unstructured.Unstructured, subresources ...string) *unstructured.Unstructured {
	t.Helper()
	var updated *unstructured.Unstructured
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := p.client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		updated, err = p.client.Update(t.Context(), change(object), metav1.UpdateOptions{}, subresources...)
		return err
	})
	if err != nil {
		t.Fatalf("update: %v", err)
	}
	return updated
}

func TestGenerateName(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		object := p.object(t)
		object.SetName("")
		object.SetGenerateName("generated-")
		created, err := p.client.Create(t.Context(), object, metav1.CreateOptions{})
		if namedBySpec[p.Kind] != nil {
			if !apierrors.IsInvalid(err) {
				t.Errorf("create with a name that differs from the spec: error = %v, want 422", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if name := created.GetName(); !strings.HasPrefix(name, "generated-") || name == "generated-" {
			t.Errorf("name = %q, want generated- and a suffix", name)
		}
		if created.GetUID() == "" || created.GetCreationTimestamp() == (metav1.Time{}) || created.GetGeneration() != 1 {
			t.Errorf("metadata = %v, want a UID, a creation timestamp and generation 1", created.Object["metadata"])
		}
	})
}

func TestConflicts(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		stale := p.create(t)
		name := stale.GetName()
		if _, err := p.client.Create(t.Context(), p.named(t, name), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("create of an existing object: error = %v, want 409", err)
		}
		p.merge(t, name, labelled("changed", "yes"))
		if _, err := p.client.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update of a stale object: error = %v, want 409", err)
		}
		if p.HasStatus() {
			if _, err := p.client.UpdateStatus(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("update of a stale status: error = %v, want 409", err)
			}
		}
		other := p.get(t, name)
		other.SetUID("00000000-0000-0000-0000-000000000000")
		if _, err := p.client.Update(t.Context(), other, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update with another UID: error = %v, want 409", err)
		}
		if _, err := p.client.Update(t.Context(), p.object(t), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("update of an absent object: error = %v, want 404", err)
		}
	})
}

// TestGeneration checks that metadata.generation increases with each change of the spec only.
func TestGeneration(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		name := p.create(t).GetName()
		want := func(object *unstructured.Unstructured, generation int64, after string) {
			t.Helper()
			if got := object.GetGeneration(); got != generation {
				t.Errorf("generation after %s = %d, want %d", after, got, generation)
			}
		}
		want(p.get(t, name), 1, "creation")
		want(p.merge(t, name, labelled("changed", "yes")), 1, "a change of labels")
		want(p.merge(t, name, map[string]any{"metadata": map[string]any{"generation": 7}}), 1, "a change of the generation")
		want(p.update(t, name, func(o *unstructured.Unstructured) *unstructured.Unstructured { return o }), 1, "an update without a change")
		if p.HasStatus() {
			want(p.merge(t, name, map[string]any{"status": p.statusReport(conditionType)}, "status"), 1, "a change of the status")
		}
		want(p.merge(t, name, p.specChange(t)), p.generation(t, 1), "a change of the spec")
		want(p.merge(t, name, p.specChange(t)), p.generation(t, 1), "the same change repeated")
	})
}

// TestStatusIsolation checks that writes of an object do not change its status, and that writes
// of the status change nothing else.
func TestStatusIsolation(t *testing.T) {
	forEachWithStatus(t, func(t *testing.T, p *place) {
		object := p.object(t)
		object.Object["status"] = p.statusReport("Ignored")
		created, err := p.client.Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		name := created.GetName()
		ignored := func(object *unstructured.Unstructured, request string) {
			t.Helper()
			if reports(object, "Ignored") {
				t.Errorf("%s changed the status, want no change", request)
			}
		}
		ignored(created, "POST")
		status := map[string]any{"status": p.statusReport("Ignored")}
		ignored(p.merge(t, name, status), "PATCH")
		ignored(p.update(t, name, func(o *unstructured.Unstructured) *unstructured.Unstructured {
			o.Object["status"] = p.statusReport("Ignored")
			return o
		}), "PUT")

		// A write of the status ignores changes of all other fields.
		everything := func(o *unstructured.Unstructured) *unstructured.Unstructured {
			o = p.changed(t, o)
			o.SetLabels(map[string]string{"from": "status"})
			o.SetAnnotations(map[string]string{"from": "status"})
			o.SetFinalizers([]string{"conformance.open-cluster-management.io/status"})
			o.Object["status"] = p.statusReport(conditionType)
			return o
		}
		unchanged := func(o *unstructured.Unstructured, request string) {
			t.Helper()
			if !reports(o, conditionType) {
				t.Errorf("status after %s = %v, want condition %s", request, o.Object["status"], conditionType)
			}
			if o.GetGeneration() != 1 || o.GetLabels()["from"] != "" || o.GetAnnotations()["from"] != "" || !slices.Equal(o.GetFinalizers(), created.GetFinalizers()) {
				t.Errorf("metadata after %s = %v, want no change", request, o.Object["metadata"])
			}
		}
		unchanged(p.update(t, name, everything, "status"), "PUT status")
		patch := everything(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}, "apiVersion": p.version.String(), "kind": p.Kind}})
		unchanged(p.merge(t, name, patch.Object, "status"), "PATCH status")

		// A write of the object without a status keeps the stored status.
		kept := p.update(t, name, func(o *unstructured.Unstructured) *unstructured.Unstructured {
			delete(o.Object, "status")
			return o
		})
		if !reports(kept, conditionType) {
			t.Errorf("status after PUT without status = %v, want condition %s", kept.Object["status"], conditionType)
		}
		wantContains(t, p.run(t, "get", p.arg(), name, "--subresource=status", "--output=yaml"), "type: "+conditionType)
		absent := p.object(t)
		if _, err := p.client.UpdateStatus(t.Context(), absent, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("PUT of the status of an absent object: error = %v, want 404", err)
		}
	})
}
