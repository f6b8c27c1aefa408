package postgres

import (
	"context"
	"testing"
	"time"
)

// waits tells whether to add so much waits, and returns what the wait ends with.
func waits(t *testing.T, m *merges, resources int) (ended chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	ended = make(chan struct{})
	go func() {
		m.add(ctx, resources)
		close(ended)
	}()
	return ended
}

func TestReportsWaitForMerges(t *testing.T) {
	tests := map[string]struct {
		before, resources int
		failing, wait     bool
	}{
		"Little":           {before: 100, resources: 5},
		"OneLargeReport":   {resources: 10 * mostUnmerged},
		"UpToTheBound":     {before: mostUnmerged - 5000, resources: 5000},
		"BeyondTheBound":   {before: mostUnmerged, resources: 5000, wait: true},
		"LargeAfterOthers": {before: 1, resources: 10 * mostUnmerged, wait: true},
		"NobodyMerges":     {before: mostUnmerged, resources: 5000, failing: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMerges()
			m.resources, m.failing = test.before, test.failing
			ended := waits(t, m, test.resources)
			if test.wait {
				// Merges that were there before let it go on.
				<-m.wanted
				m.end(test.before, false)
			}
			<-ended
			want := test.before + test.resources
			if test.wait {
				want = test.resources
			}
			if left := m.begin(); left != want {
				t.Errorf("%d are left to merge, want %d", left, want)
			}
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
			m.resources = mostUnmerged
			ended := make(chan struct{})
			go func() {
				m.add(ctx, 5000)
				close(ended)
			}()
			<-m.wanted
			release(m, cancel)
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("it waits on")
			}
		})
	}
}
