package membership

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesGrowUpToALimit(t *testing.T) {
	p := pauses{first: time.Second, most: 5 * time.Second}
	for i, base := range []time.Duration{1, 2, 4, 5, 5} {
		base *= time.Second
		if got := p.step(); got < base || got > base*3/2 {
			t.Errorf("step() %d = %s, want %s to %s", i, got, base, base*3/2)
		}
	}
	p.reset()
	if got := p.step(); got > 1500*time.Millisecond {
		t.Errorf("step() after reset() = %s, want at most 1.5s", got)
	}
}

func TestPausesBeginSoon(t *testing.T) {
	p := pauses{first: time.Second, most: 5 * time.Second, soon: 100 * time.Millisecond}
	for range 2 {
		for i, base := range []time.Duration{100, 1000, 2000} {
			base *= time.Millisecond
			if got := p.step(); got < base || got > base*3/2 {
				t.Errorf("step() %d = %s, want %s to %s", i, got, base, base*3/2)
			}
		}
		p.reset()
	}
}

// The test uses the clock of synctest, so it takes no time.
func TestPause(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(again chan<- struct{}, cancel func())
		want bool
		took time.Duration
	}{
		"the time is over":   {func(chan<- struct{}, func()) {}, true, time.Hour},
		"again is signalled": {func(again chan<- struct{}, _ func()) { again <- struct{}{} }, true, time.Minute},
		"ctx ends":           {func(_ chan<- struct{}, cancel func()) { cancel() }, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				again := make(chan struct{})
				began := time.Now()
				time.AfterFunc(time.Minute, func() { test.end(again, cancel) })
				if got := pause(ctx, time.Hour, again); got != test.want || time.Since(began) != test.took {
					t.Errorf("pause() = %t after %s, want %t after %s", got, time.Since(began), test.want, test.took)
				}
			})
		})
	}
}
