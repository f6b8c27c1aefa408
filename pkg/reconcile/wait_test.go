package reconcile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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
				if got := Pause(ctx, time.Hour, again); got != test.want || time.Since(began) != test.took {
					t.Errorf("Pause() = %t after %s, want %t after %s", got, time.Since(began), test.want, test.took)
				}
			})
		})
	}
}
