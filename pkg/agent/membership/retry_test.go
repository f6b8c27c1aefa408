package membership

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestInsist checks that an operation is repeated until it succeeds, with its problem in Waiting, and that an error that
// waiting cannot resolve is final.
func TestInsist(t *testing.T) {
	for name, test := range map[string]struct {
		errs []error
		want error
	}{
		"no error":         {nil, nil},
		"temporary errors": {[]error{errors.New("one"), errors.New("two")}, nil},
		"a final error":    {[]error{errors.New("one"), fmt.Errorf("secret: %w", errRaised), errors.New("three")}, errRaised},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistrar(t, Config{})
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := r.insist(t.Context(), "cannot write", func(context.Context) error {
					if calls++; calls > len(test.errs) {
						return nil
					}
					if calls > 1 && r.Waiting() != "cannot write: "+test.errs[calls-2].Error() {
						t.Errorf("Waiting() = %q, want the problem and the error", r.Waiting())
					}
					return test.errs[calls-1]
				})
				if !errors.Is(err, test.want) || calls > len(test.errs)+1 || test.want != nil && calls != 2 {
					t.Errorf("insist() = %v after %d calls, want %v", err, calls, test.want)
				}
			})
		})
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
