package apiserver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// TestStorageClaim checks that a server whose data were restored waits for 10 seconds, but not one with the same data; and that a
// second server ends while the first runs, which keeps its Lease.
func TestStorageClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := fake.NewClientset()
		server := func(data string) *storageClaim {
			return &storageClaim{hub: hub, namespace: "hub", lease: "storage", holder: data}
		}
		lost, restored := server("lost"), server("restored")
		if err := lost.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := server("lost").renew(t.Context()); err != nil {
			t.Errorf("claim of a server with the same data = %v, want success", err)
		}
		for seconds := range storageClaimSeconds {
			if err := restored.renew(t.Context()); err == nil || mustNotServe(err) {
				t.Fatalf("claim %ds after the first look at the Lease of the lost data = %v, want an error that is not permanent", seconds, err)
			}
			time.Sleep(time.Second)
		}
		if err := restored.renew(t.Context()); err != nil {
			t.Errorf("claim 10s after the first look at the Lease of the lost data = %v, want success", err)
		}
		if err := lost.renew(t.Context()); !mustNotServe(err) {
			t.Errorf("claim of a server that has lost it = %v, want a permanent error", err)
		}

		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := restored.keep(ctx); ctx.Err() == nil {
				t.Error(err)
			}
		})
		other := server("other")
		var refused error
		for range 20 {
			time.Sleep(time.Second)
			refused = other.renew(t.Context())
			if refused == nil {
				t.Error("another server has claimed the hub of a running server")
			}
		}
		if !mustNotServe(refused) {
			t.Errorf("claim of the hub of a running server = %v, want a permanent error", refused)
		}
		stop()
		running.Wait()
	})
}

// TestStorageClaimOfRunningServer checks that neither a clock that is an hour ahead nor an outage of the hub, in which no server
// can renew its Lease, lets a second server take the Lease of a running one.
func TestStorageClaimOfRunningServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := fake.NewClientset()
		running := &storageClaim{hub: hub, namespace: "hub", lease: "storage", holder: "running"}
		if err := running.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		leases := hub.CoordinationV1().Leases("hub")
		lease, err := leases.Get(t.Context(), "storage", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(-time.Hour)))
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		other := &storageClaim{hub: hub, namespace: "hub", lease: "storage", holder: "other"}
		waits := func(when string) {
			t.Helper()
			if err := other.renew(t.Context()); err == nil || mustNotServe(err) {
				t.Errorf("claim %s = %v, want an error that is not permanent", when, err)
			}
		}
		waits("with a clock that is an hour ahead")
		var outage error
		hub.PrependReactor("*", "leases", func(kubetesting.Action) (bool, runtime.Object, error) { return outage != nil, nil, outage })
		outage = errors.New("the hub is down")
		for range storageClaimSeconds {
			time.Sleep(time.Second)
			waits("during an outage of the hub")
		}
		outage = nil
		waits("after the outage")
		if err := running.renew(t.Context()); err != nil {
			t.Errorf("claim of the running server after the outage = %v, want success", err)
		}
		if err := other.renew(t.Context()); !mustNotServe(err) {
			t.Errorf("claim of the hub of a running server = %v, want a permanent error", err)
		}
	})
}
