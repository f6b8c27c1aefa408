package apiserver

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// TestStorageClaimOfLostData checks that a server whose data were restored starts at most 30 seconds after the last renewal of
// the Lease of the lost data, and that a running server keeps its Lease meanwhile.
func TestStorageClaimOfLostData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := fake.NewClientset()
		claim := func(data string) error {
			return (&storageClaim{hub: hub, namespace: "hub", lease: "storage", holder: data}).renew(t.Context())
		}
		if err := claim("lost"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		if err := claim("restored"); err == nil {
			t.Error("claim 25s after the last renewal of the lost data succeeds, want a refusal")
		}
		time.Sleep(5 * time.Second)
		if err := claim("restored"); err != nil {
			t.Errorf("claim 30s after the last renewal of the lost data = %v, want success", err)
		}

		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := (&storageClaim{hub: hub, namespace: "hub", lease: "storage", holder: "restored"}).keep(ctx); ctx.Err() == nil {
				t.Error(err)
			}
		})
		for range 20 {
			time.Sleep(7 * time.Second)
			if err := claim("other"); err == nil {
				t.Error("another server has claimed the hub of a running server")
			}
		}
		stop()
		running.Wait()
	})
}
