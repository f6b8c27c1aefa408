// Package await waits for the states that tests expect. All tests share its deadline, so that a slow machine needs
// one setting: TEST_TIMEOUT_SCALE multiplies it.
package await

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// scaleVariable names the environment variable with the factor of all deadlines. The default is 1.
const scaleVariable = "TEST_TIMEOUT_SCALE"

var factor = scale(os.Getenv(scaleVariable))

// Patience is the maximum time that a test waits for one expected event before it fails. A test that passes does not
// take longer if Patience is longer.
var Patience = Scaled(2 * time.Minute)

func scale(value string) float64 {
	if value == "" {
		return 1
	}
	out, err := strconv.ParseFloat(value, 64)
	if err != nil || !(out > 0 && out < 1000) {
		panic(fmt.Sprintf("%s=%q, want a positive number", scaleVariable, value))
	}
	return out
}

// Scaled returns a duration that grows with TEST_TIMEOUT_SCALE.
func Scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * factor) }

// Check returns nil in the expected state, or an error that says what differs. It may take a context, which ends when
// the time is over.
type Check interface {
	func() error | func(context.Context) error
}

func with[C Check](check C) func(context.Context) error {
	if check, ok := any(check).(func(context.Context) error); ok {
		return check
	}
	return func(context.Context) error { return any(check).(func() error)() }
}

// Eventually waits until check returns nil. The failure message is "waiting until <what>: <error>", so what names the
// expected state.
func Eventually[C Check](t testing.TB, what string, check C) {
	t.Helper()
	if err := Poll(t.Context(), check); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// True waits until check returns true. Use Eventually if an error can say more.
func True(t testing.TB, what string, check func() bool) {
	t.Helper()
	Eventually(t, what, func() error {
		if !check() {
			return errors.New("not yet")
		}
		return nil
	})
}

// Done waits until a channel delivers a value or is closed, and returns the value. It also works in a cleanup, when the
// context of the test has ended.
func Done[T any](t testing.TB, what string, done <-chan T) T {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case value := <-done:
		return value
	case <-limit.C:
		t.Fatalf("waiting until %s: nothing in %s", what, Patience)
	}
	panic("unreachable")
}

// Stays fails the test if check returns an error before marker returns nil, or once afterwards. It shows that an event
// does not happen: marker waits for a later event, one that would have come after the unwanted one.
func Stays[M, C Check](t testing.TB, what string, marker M, check C) {
	t.Helper()
	var broken error
	err := Poll(t.Context(), func(ctx context.Context) error {
		marked := with(marker)(ctx)
		if broken = with(check)(ctx); broken != nil {
			return nil
		}
		return marked
	})
	if broken != nil {
		t.Fatalf("%s did not stay so: %v", what, broken)
	}
	if err != nil {
		t.Fatalf("waiting for the event until which %s stays so: %v", what, err)
	}
}

// Poll calls check until it returns nil, for at most Patience. Most states arrive soon. The longer one takes, the more
// seldom Poll calls check, because the servers of all tests share the processors with the checks.
func Poll[C Check](ctx context.Context, check C) error { return Within(ctx, Patience, check) }

// Within is Poll with another limit than Patience.
func Within[C Check](ctx context.Context, limit time.Duration, check C) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	delays := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.2, Steps: 100, Cap: 250 * time.Millisecond}
	var last error
	err := delays.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		err := with(check)(ctx)
		// If the deadline interrupts a check, its error does not name the cause. Keep the previous one.
		if err != nil && (ctx.Err() == nil || last == nil) {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}
