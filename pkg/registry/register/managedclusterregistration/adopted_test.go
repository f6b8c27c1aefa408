package managedclusterregistration_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/rehoming"
)

func (h *hub) adoptsCluster(t *testing.T, name string) error {
	t.Helper()
	_, err := h.stores["ManagedCluster"].Import(t.Context(), &cluster.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("adopted-" + name)}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}, definition.ImportOptions{Adopt: true})
	return err
}

func (h *hub) adoptsRegistration(t *testing.T, name string) error {
	t.Helper()
	_, err := h.stores["ManagedClusterRegistration"].Import(t.Context(), &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("registration-" + name), Annotations: map[string]string{rehoming.AdoptedAnnotation: "2026-01-01T00:00:00Z"}},
		Spec:       registerv1alpha1.ManagedClusterRegistrationSpec{ManagedClusterUID: types.UID("adopted-" + name), Driver: registerv1alpha1.DriverCSR},
	}, definition.ImportOptions{Adopt: true})
	return err
}

func (h *hub) keepsAdopted(t *testing.T, name string) {
	t.Helper()
	record, err := h.Records.Get(t.Context(), name)
	if err != nil || record.UID != types.UID("registration-"+name) || record.Annotations[rehoming.AdoptedAnnotation] == "" {
		t.Errorf("registration of %s = %+v, %v, want the adopted one", name, record, err)
	}
}

// TestAdoptionReplacesRequests checks that a request to join does not prevent the adoption of the cluster of that name, and
// that a cluster that the hub has ever accepted does.
func TestAdoptionReplacesRequests(t *testing.T) {
	h := startHub(t)
	requests := h.bootstrap(t).ClusterV1().ManagedClusters()
	clusters := h.admin(t).ClusterV1().ManagedClusters()
	for name, test := range map[string]struct {
		decide func()
		want   bool
	}{
		"requested": {func() {}, true},
		"denied": {func() {
			if _, err := h.admin(t).RegisterV1alpha1().ManagedClusterRegistrations().Accept(t.Context(), "denied",
				&registerv1alpha1.ManagedClusterAcceptance{ObjectMeta: metav1.ObjectMeta{Name: "denied"}}, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"deleted": {func() {
			if err := clusters.Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"accepted": {func() {
			if _, err := clusters.Patch(t.Context(), "accepted", types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":true}}`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}, false},
		"revoked": {func() {
			for _, spec := range []string{`{"spec":{"hubAcceptsClient":true}}`, `{"spec":{"hubAcceptsClient":false}}`} {
				if _, err := clusters.Patch(t.Context(), "revoked", types.MergePatchType, []byte(spec), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}, false},
	} {
		if _, err := requests.Create(t.Context(), newCluster(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		test.decide()
		err := h.adoptsCluster(t, name)
		if test.want && err != nil || !test.want && !apierrors.IsConflict(err) {
			t.Errorf("adoption of a cluster whose name is %s = %v, want success %t or a conflict", name, err, test.want)
		}
		if got := h.get(t, name); (got.UID == types.UID("adopted-"+name)) != test.want || test.want && got.DeletionTimestamp != nil {
			t.Errorf("cluster whose name is %s after the adoption = %+v, want the adopted one: %t", name, got.ObjectMeta, test.want)
		}
		if !test.want {
			continue
		}
		if err := h.adoptsRegistration(t, name); err != nil {
			t.Errorf("adoption of a registration whose name is %s = %v, want no error", name, err)
		}
		h.keepsAdopted(t, name)
	}
}

// TestRequestsKeepAdopted checks that no request to join, whenever it is sent, replaces the registration of an adopted
// cluster: without it, the cluster would be registered again like any other.
func TestRequestsKeepAdopted(t *testing.T) {
	h := startHub(t)
	requests := h.bootstrap(t).ClusterV1().ManagedClusters()
	// The registration is imported before the cluster.
	if err := h.adoptsRegistration(t, "c1"); err != nil {
		t.Fatal(err)
	}
	if _, err := requests.Create(t.Context(), newCluster("c1"), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("Create() of a cluster that is being adopted = %v, want a conflict", err)
	}
	h.keepsAdopted(t, "c1")
	// The store has created the cluster of a request, which the adoption replaces before the request ends.
	late := newCluster("c1")
	late.UID = "late"
	h.Registrar.Created(t.Context(), late)
	h.keepsAdopted(t, "c1")
	if err := h.adoptsCluster(t, "c1"); err != nil {
		t.Fatal(err)
	}
	h.Registrar.Created(t.Context(), late)
	if err := h.Registrar.EnsureRecord(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", UID: "adopted-c1"}}); err != nil {
		t.Errorf("EnsureRecord() = %v, want no error", err)
	}
	if _, err := requests.Create(t.Context(), newCluster("c1"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create() of an adopted cluster = %v, want AlreadyExists", err)
	}
	h.keepsAdopted(t, "c1")
}

// TestAcceptedWithoutDecision checks that the claim of an accepted cluster is taken only if a decision is recorded.
func TestAcceptedWithoutDecision(t *testing.T) {
	h := startHub(t)
	for name, acceptance := range map[string]*clusterv1.Acceptance{
		"decided":   {Accepted: true, EverAccepted: true, DecidedBy: "admin"},
		"undecided": nil,
	} {
		imported := cluster.ManagedCluster(*newCluster(name, registration.EKSARNAnnotation, bootARN))
		imported.UID, imported.Spec.HubAcceptsClient, imported.Status.Acceptance = types.UID("adopted-"+name), true, acceptance
		if _, err := h.stores["ManagedCluster"].Import(t.Context(), &imported, definition.ImportOptions{Adopt: true}); err != nil {
			t.Fatal(err)
		}
		if err := h.Registrar.EnsureRecord(t.Context(), h.get(t, name)); err != nil {
			t.Fatal(err)
		}
		claimed := h.record(t, name).Spec
		if got, want := claimed.IRSA != nil, acceptance != nil; got != want {
			t.Errorf("claim of a cluster that is accepted and %s = %+v, want a claim: %t", name, claimed.IRSA, want)
		}
		if acceptance == nil {
			continue
		}
		// The next cluster may claim the same identity.
		if err := h.Records.Release(t.Context(), someHash, imported.UID); err != nil {
			t.Fatal(err)
		}
	}
}
