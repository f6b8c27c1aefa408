package framework

import (
	"context"
	"testing"
	"time"
)

// Prompt bounds an effect that the documentation promises within one or two seconds. It is enough for a busy machine,
// and less than the intervals of reports, retries and repairs, which would have the effect later.
const Prompt = 20 * time.Second

// Soon fails the test if an effect, which the caller has just seen, came later than limit after an event.
func Soon(t testing.TB, effect string, event time.Time, limit time.Duration) {
	t.Helper()
	if took := time.Since(event); took > limit {
		t.Errorf("%s after %s, want at most %s", effect, took.Round(time.Millisecond), limit)
	}
}

// Stays fails the test if check returns an error before marker returns nil, or once afterwards. It shows that an event
// does not happen: marker waits for a later event, one that would have come after the unwanted one.
func Stays(t testing.TB, what string, marker, check func(context.Context) error) {
	t.Helper()
	var broken error
	err := Poll(t.Context(), func(ctx context.Context) error {
		marked := marker(ctx)
		if broken = check(ctx); broken != nil {
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
