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

// update changes an object and puts it, again if somebody else was faster.
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
				t.Errorf("got %v for a name that the spec does not say", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if name := created.GetName(); !strings.HasPrefix(name, "generated-") || name == "generated-" {
			t.Errorf("got name %q", name)
		}
		if created.GetUID() == "" || created.GetCreationTimestamp() == (metav1.Time{}) || created.GetGeneration() != 1 {
			t.Errorf("got metadata %v", created.Object["metadata"])
		}
	})
}

func TestConflicts(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		stale := p.create(t)
		name := stale.GetName()
		if _, err := p.client.Create(t.Context(), p.named(t, name), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("create again: got %v", err)
		}
		p.merge(t, name, labelled("changed", "yes"))
		if _, err := p.client.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update of a stale object: got %v", err)
		}
		if p.HasStatus() {
			if _, err := p.client.UpdateStatus(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("update of a stale status: got %v", err)
			}
		}
		other := p.get(t, name)
		other.SetUID("00000000-0000-0000-0000-000000000000")
		if _, err := p.client.Update(t.Context(), other, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update of an object of another UID: got %v", err)
		}
		if _, err := p.client.Update(t.Context(), p.object(t), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("update of an absent object: got %v", err)
		}
	})
}

// TestGeneration checks that generation counts the changes of the spec.
func TestGeneration(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		name := p.create(t).GetName()
		want := func(object *unstructured.Unstructured, generation int64, after string) {
			t.Helper()
			if got := object.GetGeneration(); got != generation {
				t.Errorf("after %s: got generation %d, want %d", after, got, generation)
			}
		}
		want(p.get(t, name), 1, "creation")
		want(p.merge(t, name, labelled("changed", "yes")), 1, "a change of labels")
		want(p.merge(t, name, map[string]any{"metadata": map[string]any{"generation": 7}}), 1, "a change of the generation")
		want(p.update(t, name, func(o *unstructured.Unstructured) *unstructured.Unstructured { return o }), 1, "an update to the same")
		if p.HasStatus() {
			want(p.merge(t, name, map[string]any{"status": p.statusReport(conditionType)}, "status"), 1, "a change of the status")
		}
		want(p.merge(t, name, p.specChange(t)), p.generation(t, 1), "a change of the spec")
		want(p.merge(t, name, p.specChange(t)), p.generation(t, 1), "the same change again")
	})
}

// TestStatusIsolation checks that the object and its status are written apart.
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
				t.Errorf("%s has written the status", request)
			}
		}
		ignored(created, "POST")
		status := map[string]any{"status": p.statusReport("Ignored")}
		ignored(p.merge(t, name, status), "PATCH")
		ignored(p.update(t, name, func(o *unstructured.Unstructured) *unstructured.Unstructured {
			o.Object["status"] = p.statusReport("Ignored")
			return o
		}), "PUT")

		// The other way about: a status with everything else changed too.
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
				t.Errorf("%s has not written the status: %v", request, o.Object["status"])
			}
			if o.GetGeneration() != 1 || o.GetLabels()["from"] != "" || o.GetAnnotations()["from"] != "" || !slices.Equal(o.GetFinalizers(), created.GetFinalizers()) {
				t.Errorf("%s has written more than the status: %v", request, o.Object["metadata"])
			}
		}
		unchanged(p.update(t, name, everything, "status"), "PUT status")
		patch := everything(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}, "apiVersion": p.version.String(), "kind": p.Kind}})
		unchanged(p.merge(t, name, patch.Object, "status"), "PATCH status")

		// And the object keeps its status when it is written.
		kept := p.update(t, name, func(o *unstructured.Unstructured) *unstructured.Unstructured {
			delete(o.Object, "status")
			return o
		})
		if !reports(kept, conditionType) {
			t.Error("PUT without status has emptied the status")
		}
		wantContains(t, p.run(t, "get", p.arg(), name, "--subresource=status", "--output=yaml"), "type: "+conditionType)
		absent := p.object(t)
		if _, err := p.client.UpdateStatus(t.Context(), absent, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("PUT of the status of an absent object: got %v", err)
		}
	})
}
