package framework

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Patience is the time that a test waits for an expected state before it fails.
const Patience = 2 * time.Minute

// Eventually waits until check returns nil. The failure message is "waiting until <what>: <error>",
// so what names the expected state.
func Eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	if err := Poll(t.Context(), check); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// Poll calls check until it returns nil, for at most Patience. Most states arrive soon. The longer one takes, the more
// seldom Poll calls check, because the servers of all tests share the processors with the checks.
func Poll(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	delays := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.2, Steps: 100, Cap: 250 * time.Millisecond}
	var last error
	err := delays.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		err := check(ctx)
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

// Must returns the value of a call that must not fail.
func Must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// IsGone returns nil if err, the result of a get, is NotFound, or an error otherwise.
func IsGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return errors.New("the object still exists")
	}
	return err
}

// Gone returns nil if each of the lookups returned NotFound, or an error otherwise.
func Gone(lookups ...error) error {
	var errs []error
	for _, err := range lookups {
		errs = append(errs, IsGone(err))
	}
	return errors.Join(errs...)
}

// InvalidFields returns the field paths in an API error, sorted and without duplicates.
func InvalidFields(err error) []string {
	var out []string
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			out = append(out, cause.Field)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ToJSON returns a value as indented JSON, for messages.
func ToJSON(value any) string {
	out, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(out)
}
