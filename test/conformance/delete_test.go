package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/hub-apiserver/test/await"
)

const finalizer = "conformance.open-cluster-management.io/held"

// finalizers returns a patch that sets the finalizers.
func finalizers(names ...any) map[string]any {
	return map[string]any{"metadata": map[string]any{"finalizers": names}}
}

// gone waits until an object no longer exists.
func (p *place) gone(t *testing.T, name string) {
	t.Helper()
	await.Eventually(t, p.Kind+" "+name+" does not exist", func(ctx context.Context) error {
		_, err := p.client.Get(ctx, name, metav1.GetOptions{})
		return wantNotFound(err)
	})
}

func wantNotFound(err error) error {
	if err == nil {
		return errors.New("it exists")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func TestFinalizers(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		name := p.create(t).GetName()
		p.merge(t, name, finalizers(finalizer))
		for range 2 {
			if err := p.client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		held := p.get(t, name)
		if held.GetDeletionTimestamp() == nil {
			t.Error("deletionTimestamp after delete = nil, want a time")
		}
		other := held.DeepCopy()
		other.SetFinalizers([]string{finalizer, finalizer + "-too"})
		if _, err := p.client.Update(t.Context(), other, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) {
			t.Errorf("update that adds a finalizer to an object in deletion: error = %v, want 422, 403 or 409", err)
		}
		p.merge(t, name, finalizers())
		p.gone(t, name)
	})
}

func TestDeletePreconditions(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		stale := p.create(t)
		name := stale.GetName()
		p.merge(t, name, labelled("changed", "yes"))
		for what, preconditions := range map[string]*metav1.Preconditions{
			"another UID":              {UID: ptr.To(types.UID("00000000-0000-0000-0000-000000000000"))},
			"a stale resource version": {UID: ptr.To(stale.GetUID()), ResourceVersion: ptr.To(stale.GetResourceVersion())},
		} {
			if err := p.client.Delete(t.Context(), name, metav1.DeleteOptions{Preconditions: preconditions}); !apierrors.IsConflict(err) {
				t.Errorf("delete with %s: error = %v, want 409", what, err)
			}
		}
		if err := p.client.Delete(t.Context(), name, *metav1.NewPreconditionDeleteOptions(string(stale.GetUID()))); err != nil {
			t.Error(err)
		}
		p.gone(t, name)
	})
}

// TestDeleteCollection checks that deletecollection deletes only the selected objects.
func TestDeleteCollection(t *testing.T) {
	forEach(t, func(t *testing.T, p *place) {
		var names []string
		for i := range 4 {
			names = append(names, p.create(t).GetName())
			p.merge(t, names[i], labelled("number", fmt.Sprint(i)))
		}
		remaining := func(want ...string) {
			t.Helper()
			list, err := p.client.List(t.Context(), p.listOptions())
			if err != nil {
				t.Fatal(err)
			}
			// An object with a finalizer exists until its controller removes the finalizer.
			var got []string
			for i := range list.Items {
				if list.Items[i].GetDeletionTimestamp() == nil {
					got = append(got, list.Items[i].GetName())
				}
			}
			slices.Sort(got)
			want = slices.Sorted(slices.Values(want))
			if !slices.Equal(got, want) {
				t.Errorf("remaining objects = %v, want %v", got, want)
			}
		}
		remove := func(options metav1.DeleteOptions, labels, fields string) {
			t.Helper()
			err := p.client.DeleteCollection(t.Context(), options, metav1.ListOptions{LabelSelector: p.selector() + labels, FieldSelector: fields})
			if err != nil {
				t.Fatal(err)
			}
		}
		remove(metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, "", "")
		remaining(names...)
		remove(metav1.DeleteOptions{}, ",number=0", "")
		remaining(names[1:]...)
		remove(metav1.DeleteOptions{}, "", "metadata.name="+names[1])
		remaining(names[2:]...)
		remove(metav1.DeleteOptions{}, "", "metadata.name=absent")
		remaining(names[2:]...)
		remove(metav1.DeleteOptions{}, "", "")
		remaining()
	})
}

// dependent creates a ConfigMap that an object owns, and returns its name.
func (p *place) dependent(t *testing.T, owner *unstructured.Unstructured, finalizers ...string) string {
	t.Helper()
	reference := metav1.NewControllerRef(owner, p.gvk())
	configMap, err := p.hub.kube.CoreV1().ConfigMaps(p.inNamespace()).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: owner.GetName() + "-", OwnerReferences: []metav1.OwnerReference{*reference}, Finalizers: finalizers,
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return configMap.Name
}

// observedByCollector waits until the garbage collector has observed all existing dependents,
// because it orphans only dependents that it has observed. It observes ConfigMaps in the order of
// their creation and deletes those with an absent owner. So a last ConfigMap with an absent owner
// is deleted after the garbage collector has observed the others.
func (p *place) observedByCollector(t *testing.T, owner *unstructured.Unstructured) {
	t.Helper()
	absent := owner.DeepCopy()
	absent.SetName("absent")
	absent.SetUID(uuid.NewUUID())
	last := p.dependent(t, absent)
	await.Eventually(t, "the garbage collector has observed the dependents", func(ctx context.Context) error {
		_, err := p.hub.kube.CoreV1().ConfigMaps(p.inNamespace()).Get(ctx, last, metav1.GetOptions{})
		return wantNotFound(err)
	})
}

// TestGarbageCollection checks the hub's garbage collector with an object of each kind as the owner
// and as the dependent.
func TestGarbageCollection(t *testing.T) {
	t.Run("background", func(t *testing.T) {
		forEach(t, func(t *testing.T, p *place) {
			owner := p.create(t)
			dependent := p.dependent(t, owner)
			if err := p.client.Delete(t.Context(), owner.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			await.Eventually(t, "the dependent does not exist", func(ctx context.Context) error {
				_, err := p.hub.kube.CoreV1().ConfigMaps(p.inNamespace()).Get(ctx, dependent, metav1.GetOptions{})
				return wantNotFound(err)
			})
		})
	})
	t.Run("foreground", func(t *testing.T) {
		forEach(t, func(t *testing.T, p *place) {
			owner := p.create(t)
			dependent := p.dependent(t, owner, finalizer)
			if err := p.client.Delete(t.Context(), owner.GetName(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
				t.Fatal(err)
			}
			configMaps := p.hub.kube.CoreV1().ConfigMaps(p.inNamespace())
			await.Eventually(t, "the dependent has a deletion timestamp", func(ctx context.Context) error {
				object, err := configMaps.Get(ctx, dependent, metav1.GetOptions{})
				if err == nil && object.DeletionTimestamp == nil {
					return errors.New("deletionTimestamp = nil")
				}
				return err
			})
			if waiting := p.get(t, owner.GetName()); !slices.Contains(waiting.GetFinalizers(), metav1.FinalizerDeleteDependents) {
				t.Errorf("finalizers of the owner = %v, want %s", waiting.GetFinalizers(), metav1.FinalizerDeleteDependents)
			}
			if _, err := configMaps.Patch(t.Context(), dependent, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			p.gone(t, owner.GetName())
		})
	})
	t.Run("orphan", func(t *testing.T) {
		forEach(t, func(t *testing.T, p *place) {
			owner := p.create(t)
			dependent := p.dependent(t, owner)
			p.observedByCollector(t, owner)
			if err := p.client.Delete(t.Context(), owner.GetName(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}); err != nil {
				t.Fatal(err)
			}
			p.gone(t, owner.GetName())
			orphan, err := p.hub.kube.CoreV1().ConfigMaps(p.inNamespace()).Get(t.Context(), dependent, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(orphan.OwnerReferences) != 0 {
				t.Errorf("ownerReferences of the orphan = %v, want none", orphan.OwnerReferences)
			}
		})
	})
	t.Run("owned", func(t *testing.T) {
		forEach(t, func(t *testing.T, p *place) {
			reference, remove := p.foreignOwner(t)
			object := p.object(t)
			object.SetOwnerReferences([]metav1.OwnerReference{reference})
			if _, err := p.client.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			remove()
			p.gone(t, object.GetName())
		})
	})
}

// foreignOwner creates an owner for an object of the kind: a ClusterRole or a ConfigMap. It returns
// the owner reference and a function that deletes the owner.
func (p *place) foreignOwner(t *testing.T) (metav1.OwnerReference, func()) {
	t.Helper()
	name := p.label + "-owner"
	if p.ClusterScoped {
		roles := p.hub.kube.RbacV1().ClusterRoles()
		owner, err := roles.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return *metav1.NewControllerRef(owner, rbacv1.SchemeGroupVersion.WithKind("ClusterRole")), func() {
			if err := roles.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	configMaps := p.hub.kube.CoreV1().ConfigMaps(p.namespace)
	owner, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap")), func() {
		if err := configMaps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
