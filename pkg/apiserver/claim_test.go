package apiserver

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// TestStorageClaim checks that a server whose data were restored starts at once if the server of the lost data was stopped,
// and waits for at most 15 seconds if it was killed; and that a second server ends while the first runs, which keeps its Lease.
func TestStorageClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := fake.NewClientset()
		server := func(data string) *storageClaim {
			return &storageClaim{hub: hub, namespace: "hub", lease: "storage", holder: data}
		}
		stopped, killed, restored := server("stopped"), server("killed"), server("restored")
		if err := stopped.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := restored.release(t.Context()); err != nil {
			t.Errorf("release of the claim of another server = %v, want no error", err)
		}
		if err := server("other").renew(t.Context()); err == nil {
			t.Error("claim while another server holds it succeeds, want an error")
		}
		if err := stopped.release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := killed.renew(t.Context()); err != nil {
			t.Errorf("claim after another server has released it = %v, want success", err)
		}

		for seconds := range storageClaimSeconds {
			if err := restored.renew(t.Context()); err == nil || mustNotServe(err) {
				t.Fatalf("claim %ds after the last renewal of a killed server = %v, want an error that is not permanent", seconds, err)
			}
			time.Sleep(time.Second)
		}
		if err := restored.renew(t.Context()); err != nil {
			t.Errorf("claim 15s after the last renewal of a killed server = %v, want success", err)
		}
		if err := killed.renew(t.Context()); !mustNotServe(err) {
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
