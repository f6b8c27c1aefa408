package fair

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	clocktesting "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/test/await"
)

// metric returns the value of a metric of the queue that is named after the test.
func metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, sample := range family.GetMetric() {
			for _, label := range sample.GetLabel() {
				if label.GetValue() == t.Name() {
					return sample.GetGauge().GetValue() + sample.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("metric %s does not exist", name)
	return 0
}

// line is a limiter with an exhausted burst, and the requests that it has granted.
type line struct {
	*Limiter
	t       *testing.T
	granted chan string
	delay   time.Duration
}

func newLine(t *testing.T) *line {
	l := &line{t: t, granted: make(chan string, 100)}
	l.Limiter = newLimiter(10, 1, clocktesting.NewFakePassiveClock(time.Now()), func(delay time.Duration, _ func()) { l.delay = delay })
	if !l.TryAccept() || l.TryAccept() {
		t.Fatal("TryAccept() with a burst of one did not accept exactly one request")
	}
	return l
}

func (l *line) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lanes[ordinaryLane].len() + l.lanes[priorityLane].len()
}

// wait starts a request, and returns when the request waits.
func (l *line) wait(ctx context.Context, name string, class Class) {
	l.t.Helper()
	before := l.len()
	go func() {
		if err := l.Wait(WithClass(ctx, class)); err != nil {
			name = err.Error()
		}
		l.granted <- name
	}()
	await.True(l.t, "request "+name+" waits", func() bool { return l.len() == before+1 })
}

func TestLimiterLetsTenantsTakeTurns(t *testing.T) {
	l := newLine(t)
	for range 4 {
		l.wait(t.Context(), "flood", Class{Tenant: "flood"})
	}
	l.wait(t.Context(), "one", Class{Tenant: "one"})
	l.wait(t.Context(), "deleted", Class{Priority: true, Tenant: "flood"})
	l.wait(t.Context(), "deleted", Class{Priority: true, Tenant: "flood"})
	var order []string
	for i := range 7 {
		// The clock does not advance, so each request is due 100 ms after the previous one.
		if want := time.Duration(i+1) * 100 * time.Millisecond; l.delay != want {
			t.Errorf("delay of request %d = %s, want %s", i, l.delay, want)
		}
		l.grant()
		order = append(order, <-l.granted)
	}
	want := []string{"deleted", "flood", "deleted", "one", "flood", "flood", "flood"}
	if !slices.Equal(order, want) {
		t.Errorf("order = %v, want %v", order, want)
	}
}

func TestLimiterRemovesCancelledRequests(t *testing.T) {
	l := newLine(t)
	ctx, cancel := context.WithCancel(t.Context())
	l.wait(ctx, "cancelled", Class{Tenant: "a"})
	l.wait(t.Context(), "next", Class{Tenant: "b"})
	cancel()
	if got, want := <-l.granted, context.Canceled.Error(); got != want {
		t.Errorf("cancelled request = %s, want %s", got, want)
	}
	l.grant()
	if got := <-l.granted; got != "next" {
		t.Errorf("request after the cancelled one = %s, want next", got)
	}
	if l.len() != 0 || l.armed {
		t.Errorf("waiting requests = %d, armed = %v, want 0 and false", l.len(), l.armed)
	}
	if err := l.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait() with an ended context = %v, want %v", err, context.Canceled)
	}
}

type answer func(*http.Request) (*http.Response, error)

func (a answer) RoundTrip(request *http.Request) (*http.Response, error) { return a(request) }

func TestWatchdogWaitsForAnswers(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	dog := NewWatchdog(t.Name(), clock)
	ctx, end := dog.Begin(t.Context(), "a", 30*time.Second, nil)
	defer end()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://example", nil)
	if err != nil {
		t.Fatal(err)
	}
	step := func(step time.Duration, stuck bool) {
		t.Helper()
		clock.Step(step)
		dog.check()
		if err := dog.Err(); (err != nil) != stuck {
			t.Errorf("Err() = %v, want an error = %v", err, stuck)
		}
	}
	step(20*time.Second, false)
	response, err := Transport(answer(func(*http.Request) (*http.Response, error) {
		step(45*time.Second, false)
		return &http.Response{Body: io.NopCloser(strings.NewReader(""))}, nil
	})).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	// A request includes reading the response.
	step(14*time.Second, false)
	if err := errors.Join(response.Body.Close(), response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	step(20*time.Second, false)
	_, err = Transport(answer(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })).RoundTrip(request)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	step(20*time.Second, false)
	_, _ = Transport(answer(func(*http.Request) (*http.Response, error) {
		step(2*time.Minute, true)
		return nil, io.ErrUnexpectedEOF
	})).RoundTrip(request)
}
