package search

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func (p *Pool) heldNow() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// TestEndedRequestsHoldNothing checks a search that still runs when its request ends: it must not take memory that
// nothing returns.
func TestEndedRequestsHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(PoolBytes)
		ctx, cancel := context.WithCancel(t.Context())
		budget := NewBudget(time.Second, DefaultBytes)
		budget.Draw(ctx, pool, "jane")
		if err := budget.Hold(2 << 20); err != nil || pool.heldNow() != 2<<20 {
			t.Fatalf("Hold() = %v, and the pool holds %d bytes, want nil and %d", err, pool.heldNow(), 2<<20)
		}
		cancel()
		synctest.Wait()
		if held := pool.heldNow(); held != 0 {
			t.Errorf("held bytes after the end of the request = %d, want 0", held)
		}
		if err := budget.Hold(2 << 20); !errors.Is(err, context.Canceled) {
			t.Errorf("Hold() after the end of the request = %v, want %v", err, context.Canceled)
		}
		if held := pool.heldNow(); held != 0 || len(pool.callers) != 0 {
			t.Errorf("held bytes = %d of %d callers, want none", held, len(pool.callers))
		}
	})
}

// TestRequestsThatEndMeanwhile checks that the end of a request and its searches do not race.
func TestRequestsThatEndMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(1 << 40)
		var running sync.WaitGroup
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			budget := NewBudget(time.Second, 1<<30)
			budget.Draw(ctx, pool, "jane")
			running.Go(func() {
				for range 5 {
					_ = budget.Hold(2 << 20) // The error is not the subject of this test.
				}
			})
			running.Go(cancel)
		}
		running.Wait()
		synctest.Wait()
		if held := pool.heldNow(); held != 0 {
			t.Errorf("held bytes after the end of all requests = %d, want 0", held)
		}
	})
}
