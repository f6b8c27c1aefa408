package work

import (
	"testing"
	"time"
)

// TestRetryChecksPermissionsInTime checks that the permissions of an executor are checked in time although a
// manifest that fails is retried later.
func TestRetryChecksPermissionsInTime(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		until       time.Time
		delay, want time.Duration
	}{
		"no executor":          {time.Time{}, lastRetry, lastRetry},
		"the retry is earlier": {now.Add(20 * time.Second), time.Second, time.Second},
		"the check is earlier": {now.Add(20 * time.Second), lastRetry, 20 * time.Second},
		"the check is due":     {now.Add(-time.Minute), lastRetry, firstRetry},
		"both are due":         {now.Add(-time.Minute), time.Millisecond, time.Millisecond},
	} {
		c := &Controller{now: func() time.Time { return now }}
		st := c.states.get(testKey)
		st.admitted.until = test.until
		if got := c.retry(testKey, nil, test.delay); got != test.want || !st.notBefore.Equal(now.Add(test.delay)) {
			t.Errorf("%s: retry(%s) = %s, failed manifests after %s, want %s and %s", name, test.delay, got, st.notBefore.Sub(now), test.want, test.delay)
		}
	}
}
