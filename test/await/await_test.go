package await

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failed keeps the message of a test that fails.
type failed struct {
	testing.TB
	message string
}

func (f *failed) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// message runs a test and returns its failure, or an empty string if it passes.
func message(t *testing.T, test func(t testing.TB)) string {
	f, done := &failed{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		test(f)
	}()
	<-done
	return f.message
}

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var calls int
		Eventually(t, "ready", func(context.Context) error {
			if calls++; time.Since(began) < Patience/2 {
				return errors.New("not ready")
			}
			return nil
		})
		if most := int(Patience/(250*time.Millisecond)) + 30; calls > most {
			t.Errorf("calls of check = %d, want at most %d", calls, most)
		}
		True(t, "true", func() bool { return true })
	})
}

func TestFailuresNameTheStateAndTheCause(t *testing.T) {
	var checks int
	tests := map[string]struct {
		test func(testing.TB)
		want []string
	}{
		"an error": {func(t testing.TB) { Eventually(t, "ready", func() error { return errors.New("port closed") }) }, []string{"ready", "port closed"}},
		"an error of the deadline": {func(t testing.TB) {
			Eventually(t, "ready", func(ctx context.Context) error {
				if checks++; checks == 1 {
					return errors.New("port closed")
				}
				<-ctx.Done()
				return errors.New("interrupted")
			})
		}, []string{"port closed"}},
		"false":           {func(t testing.TB) { True(t, "ready", func() bool { return false }) }, []string{"ready"}},
		"an open channel": {func(t testing.TB) { Done(t, "ready", make(chan int)) }, []string{"ready"}},
		"no marker": {func(t testing.TB) {
			Stays(t, "the object", func() error { return errors.New("no event") }, func() error { return nil })
		}, []string{"the object", "no event"}},
		"a change": {func(t testing.TB) {
			Stays(t, "the object", func() error { return errors.New("no event") }, func() error { return errors.New("deleted") })
		}, []string{"the object", "deleted"}},
		"a change at the marker": {func(t testing.TB) {
			var marked bool
			Stays(t, "the object", func() error { marked = true; return nil }, func() error {
				if marked {
					return errors.New("deleted")
				}
				return nil
			})
		}, []string{"the object", "deleted"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := message(t, test.test)
				for _, want := range test.want {
					if !strings.Contains(got, want) {
						t.Errorf("failure = %q, want it to contain %q", got, want)
					}
				}
			})
		})
	}
}

func TestStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		marker := func() error {
			if time.Since(began) < time.Second {
				return errors.New("no event")
			}
			return nil
		}
		if got := message(t, func(t testing.TB) { Stays(t, "the object", marker, func() error { return nil }) }); got != "" {
			t.Errorf("failure = %q, want none", got)
		}
	})
}

func TestScale(t *testing.T) {
	for value, want := range map[string]float64{"": 1, "0.5": 0.5, "4": 4} {
		if got := scale(value); got != want {
			t.Errorf("scale(%q) = %v, want %v", value, got, want)
		}
	}
	for _, value := range []string{"fast", "0", "-1", "NaN"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("scale(%q) returned, want a panic", value)
				}
			}()
			scale(value)
		}()
	}
}
