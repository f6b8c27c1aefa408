package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestIgnoreCanceled checks that only a canceled request of a program that stops is not logged.
func TestIgnoreCanceled(t *testing.T) {
	before := slices.Clone(utilruntime.ErrorHandlers)
	defer func() { utilruntime.ErrorHandlers = before }()
	var logged []string
	utilruntime.ErrorHandlers[0] = func(_ context.Context, err error, _ string, _ ...any) { logged = append(logged, err.Error()) }
	IgnoreCanceled()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	canceled := fmt.Errorf("get: %w", context.Canceled)
	for _, ctx := range []context.Context{t.Context(), stopped} {
		utilruntime.HandleErrorWithContext(ctx, canceled, "Failed to watch")
		utilruntime.HandleErrorWithContext(ctx, errors.New("forbidden"), "Failed to watch")
	}
	if want := []string{"get: context canceled", "forbidden", "forbidden"}; !slices.Equal(logged, want) {
		t.Errorf("logged = %q, want %q", logged, want)
	}
}
