package postgres

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
)

func TestReportsWaitForMerges(t *testing.T) {
	tests := map[string]struct {
		before, resources int
		failing, wait     bool
	}{
		"Little":           {before: 100, resources: 5},
		"OneLargeReport":   {resources: 10 * maxUnmerged},
		"UpToTheBound":     {before: maxUnmerged - 5000, resources: 5000},
		"BeyondTheBound":   {before: maxUnmerged, resources: 5000, wait: true},
		"LargeAfterOthers": {before: 1, resources: 10 * maxUnmerged, wait: true},
		"NobodyMerges":     {before: maxUnmerged, resources: 5000, failing: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMerges()
				m.resources, m.failing = test.before, test.failing
				added := make(chan struct{})
				go func() {
					m.add(t.Context(), test.resources)
					close(added)
				}()
				synctest.Wait()
				waiting := true
				select {
				case <-added:
					waiting = false
				default:
				}
				if waiting != test.wait {
					t.Errorf("add() waits = %t, want %t", waiting, test.wait)
				}
				want := test.before + test.resources
				if waiting {
					want = test.resources
					m.end(test.before, false)
				}
				synctest.Wait()
				<-added
				if left := m.begin(); left != want {
					t.Errorf("begin() = %d resources to merge, want %d", left, want)
				}
			})
		})
	}
}

func TestWaitsForMergesEnd(t *testing.T) {
	for name, release := range map[string]func(*merges, context.CancelFunc){
		"CallerGivesUp": func(_ *merges, cancel context.CancelFunc) { cancel() },
		"MergeFails":    func(m *merges, _ context.CancelFunc) { m.end(0, true) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m := newMerges()
			m.resources = maxUnmerged
			ended := make(chan struct{})
			go func() {
				m.add(ctx, 5000)
				close(ended)
			}()
			<-m.wanted
			release(m, cancel)
			select {
			case <-ended:
			case <-time.After(await.Patience):
				t.Fatal("timeout waiting for add")
			}
		})
	}
}
