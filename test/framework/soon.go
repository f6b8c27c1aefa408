package framework

import (
	"testing"
	"time"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// Prompt bounds an effect that the documentation promises within one or two seconds. It is enough for a busy machine,
// and less than the intervals of reports, retries and repairs, which would have the effect later.
const Prompt = 20 * time.Second

// Soon fails the test if an effect, which the caller has just seen, came later than limit after an event. As all
// deadlines of tests, the limit is scaled.
func Soon(t testing.TB, effect string, event time.Time, limit time.Duration) {
	t.Helper()
	if took, limit := time.Since(event), await.Scaled(limit); took > limit {
		t.Errorf("%s after %s, want at most %s", effect, took.Round(time.Millisecond), limit)
	}
}
