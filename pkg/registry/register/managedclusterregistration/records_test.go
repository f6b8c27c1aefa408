package managedclusterregistration_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
)

const someHash = "138c525cf3b7f74ba3b945e7847792cc"

func record(name string, uid types.UID) *registerv1alpha1.ManagedClusterRegistration {
	return &registerv1alpha1.ManagedClusterRegistration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       registerv1alpha1.ManagedClusterRegistrationSpec{ManagedClusterUID: uid, Driver: registerv1alpha1.DriverCSR},
		Status:     registerv1alpha1.ManagedClusterRegistrationStatus{IRSA: &registerv1alpha1.IRSAStatus{Hash: someHash}},
	}
}

func TestRecords(t *testing.T) {
	h := startHub(t)
	ctx := t.Context()
	if _, err := h.Records.Get(ctx, "c1"); !apierrors.IsNotFound(err) {
		t.Fatalf("Get() = %v, want 404", err)
	}
	created, err := h.Records.Create(ctx, record("c1", "uid1"))
	if err != nil {
		t.Fatal(err)
	}
	if created.Generation != 1 || created.Status.IRSA == nil || created.Status.IRSA.Hash != someHash {
		t.Errorf("Create() = %+v, want the given status", created)
	}
	if _, err := h.Records.Create(ctx, record("c1", "uid2")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create() of an existing registration = %v, want AlreadyExists", err)
	}

	same, err := h.Records.Update(ctx, "c1", func(*registerv1alpha1.ManagedClusterRegistration) error { return nil })
	if err != nil || same.ResourceVersion != created.ResourceVersion {
		t.Errorf("Update() without a change = %+v, %v, want no write", same, err)
	}
	changed, err := h.Records.Update(ctx, "c1", func(r *registerv1alpha1.ManagedClusterRegistration) error {
		r.Status.IRSA.Provisioned = true
		return nil
	})
	if err != nil || !changed.Status.IRSA.Provisioned || changed.Generation != 1 {
		t.Errorf("Update() of the status = %+v, %v, want the status of generation 1", changed, err)
	}
	changed, err = h.Records.Update(ctx, "c1", func(r *registerv1alpha1.ManagedClusterRegistration) error {
		r.Spec.Driver = registerv1alpha1.DriverAWSIRSA
		return nil
	})
	if err != nil || changed.Generation != 2 {
		t.Errorf("Update() of the spec = %+v, %v, want generation 2", changed, err)
	}
	cause := errors.New("no")
	if _, err := h.Records.Update(ctx, "c1", func(*registerv1alpha1.ManagedClusterRegistration) error { return cause }); !errors.Is(err, cause) {
		t.Errorf("Update() = %v, want the error of the change", err)
	}

	if err := h.Records.Delete(ctx, "c1", "another"); !apierrors.IsConflict(err) {
		t.Errorf("Delete() with another UID = %v, want 409", err)
	}
	if err := h.Records.Delete(ctx, "c1", created.UID); err != nil {
		t.Error(err)
	}
	if _, err := h.Records.Get(ctx, "c1"); !apierrors.IsNotFound(err) {
		t.Errorf("Get() after Delete() = %v, want 404", err)
	}
}

func TestConcurrentUpdates(t *testing.T) {
	h := startHub(t)
	if _, err := h.Records.Create(t.Context(), record("c1", "uid1")); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			_, err := h.Records.Update(t.Context(), "c1", func(r *registerv1alpha1.ManagedClusterRegistration) error {
				r.Spec.RequestedBy.Groups = append(r.Spec.RequestedBy.Groups, fmt.Sprint(i))
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	got, err := h.Records.Get(t.Context(), "c1")
	if err != nil || len(got.Spec.RequestedBy.Groups) != 8 {
		t.Errorf("registration after concurrent updates = %+v, %v, want 8 groups", got, err)
	}
}

func holder(name string, uid types.UID) registration.Holder {
	return registration.Holder{ClusterName: name, ClusterUID: uid, Claim: registerv1alpha1.IRSAClaim{ManagedClusterARN: bootARN}}
}

// TestReservations checks the conditions under which an identity is reserved for another cluster.
func TestReservations(t *testing.T) {
	h := startHub(t)
	ctx := t.Context()
	reserve := func(holder registration.Holder, want error) {
		t.Helper()
		if err := h.Records.Reserve(ctx, someHash, holder); !errors.Is(err, want) {
			t.Fatalf("Reserve() by %s = %v, want %v", holder.ClusterName, err, want)
		}
	}
	held := func(want string) {
		t.Helper()
		got, err := h.Records.Reserved(ctx, someHash)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && got != nil || want != "" && (got == nil || got.ClusterName != want) {
			t.Fatalf("Reserved() = %+v, want %q", got, want)
		}
	}
	pass := func(d time.Duration) { h.clock.SetTime(h.clock.Now().Add(d)) }

	held("")
	// A request that has not stored its ManagedCluster yet has time to do so.
	reserve(holder("c1", "uid1"), nil)
	reserve(holder("c1", "uid1"), nil)
	reserve(holder("c2", "uid2"), registration.ErrClaimed)
	held("c1")
	// The same cluster repeats a request that failed.
	reserve(holder("c1", "uid1b"), nil)
	// A renewed reservation has the full lifetime.
	pass(90 * time.Second)
	reserve(holder("c1", "uid1b"), nil)
	pass(90 * time.Second)
	reserve(holder("c2", "uid2"), registration.ErrClaimed)
	// After a crash before the ManagedCluster was stored, the reservation expires.
	pass(time.Minute)
	held("")
	reserve(holder("c2", "uid2"), nil)
	// Release() of an identity of another holder has no effect.
	if err := h.Records.Release(ctx, someHash, "uid1b"); err != nil {
		t.Fatal(err)
	}
	held("c2")

	// A ManagedCluster without a registration holds the identity without expiration.
	mc, err := h.admin(t).ClusterV1().ManagedClusters().Create(ctx, newCluster("c3"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	registered, err := h.Records.Get(ctx, "c3")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Records.Delete(ctx, "c3", registered.UID); err != nil {
		t.Fatal(err)
	}
	if err := h.Records.Release(ctx, someHash, "uid2"); err != nil {
		t.Fatal(err)
	}
	reserve(holder("c3", mc.UID), nil)
	pass(time.Hour)
	reserve(holder("c2", "uid2"), registration.ErrClaimed)
	// A registration with the claim also holds the identity, even after the
	// ManagedCluster is deleted. A registration without the claim does not hold it.
	if err := h.admin(t).ClusterV1().ManagedClusters().Delete(ctx, "c3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Records.Create(ctx, record("c3", mc.UID)); err != nil {
		t.Fatal(err)
	}
	reserve(holder("c2", "uid2"), registration.ErrClaimed)
	if _, err := h.Records.Update(ctx, "c3", func(r *registerv1alpha1.ManagedClusterRegistration) error {
		r.Status.IRSA = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	reserve(holder("c2", "uid2"), nil)
	held("c2")
}

// TestReservationRace checks that exactly one of many concurrent reservations succeeds, for new and for
// expired identities.
func TestReservationRace(t *testing.T) {
	h := startHub(t)
	for _, what := range []string{"new", "expired"} {
		t.Run(what, func(t *testing.T) {
			var mu sync.Mutex
			var winners []string
			var group sync.WaitGroup
			for i := range 10 {
				name := fmt.Sprintf("c%d", i)
				group.Go(func() {
					err := h.Records.Reserve(t.Context(), someHash, holder(name, types.UID(what+name)))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						winners = append(winners, name)
					case !errors.Is(err, registration.ErrClaimed):
						t.Error(err)
					}
				})
			}
			group.Wait()
			got, err := h.Records.Reserved(t.Context(), someHash)
			if err != nil || len(winners) != 1 || got == nil || got.ClusterName != winners[0] {
				t.Errorf("winners = %v, Reserved() = %+v, %v, want one winner", winners, got, err)
			}
		})
		h.clock.SetTime(h.clock.Now().Add(time.Hour))
	}
}
