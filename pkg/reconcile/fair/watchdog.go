package fair

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// checkPeriod is how often a Watchdog looks at the workers.
	checkPeriod = time.Second
	// maxRequest is how long a request may keep a worker waiting. The deadlines of all
	// requests are shorter, so a worker that waits longer disregards its own.
	maxRequest = time.Minute
	// maxNamed is how many stuck workers an error names.
	maxNamed = 3
)

// Watchdog finds the workers that do not return. A worker is stuck if it has neither
// returned nor made a request for the time that it was given. While it waits for the
// answer of an API server it is not stuck, since requests have deadlines of their own
// and admission webhooks may use all of the time.
type Watchdog struct {
	// name is the name of the queue in metrics and logs.
	name  string
	clock clock.WithTicker

	mu    sync.Mutex
	turns map[*turn]struct{}
}

// turn is the time that a worker has one object.
type turn struct {
	dog *Watchdog
	// object is the kind and name of the object.
	object string
	limit  time.Duration
	logger klog.Logger
	// abandon is called when the worker is stuck; may be nil.
	abandon func()

	// The rest is guarded by the watchdog.

	began time.Time
	// heard is when the last request or answer was.
	heard time.Time
	// requests is how many requests are under way.
	requests int
	stuck    bool
}

// NewWatchdog returns a watchdog for the workers of a queue. The clock of the machine
// is used if it is nil.
func NewWatchdog(name string, of clock.WithTicker) *Watchdog {
	if of == nil {
		of = clock.RealClock{}
	}
	stuckWorkers.WithLabelValues(name).Set(0)
	return &Watchdog{name: name, clock: of, turns: map[*turn]struct{}{}}
}

type turnKey struct{}

// Begin watches a worker that has an object, until the returned function is called.
// Requests that are made with the returned context, by clients whose transport is
// wrapped by Transport, are signs of life. If the worker shows none for the limit, it
// is stuck and abandon is called once, unless it is nil.
func (d *Watchdog) Begin(ctx context.Context, object string, limit time.Duration, abandon func()) (context.Context, func()) {
	now := d.clock.Now()
	t := &turn{dog: d, object: object, limit: limit, logger: klog.FromContext(ctx), abandon: abandon, began: now, heard: now}
	d.mu.Lock()
	d.turns[t] = struct{}{}
	d.mu.Unlock()
	return context.WithValue(ctx, turnKey{}, t), t.end
}

func (t *turn) end() {
	d := t.dog
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.turns, t)
	if t.stuck {
		stuckWorkers.WithLabelValues(d.name).Dec()
		t.logger.Info("A worker that was stuck has returned", "queue", d.name, "object", t.object, "took", d.clock.Since(t.began))
	}
}

// Run looks for stuck workers until ctx ends.
func (d *Watchdog) Run(ctx context.Context) {
	ticker := d.clock.NewTicker(checkPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			d.check()
		}
	}
}

// check marks the workers that have become stuck.
func (d *Watchdog) check() {
	now := d.clock.Now()
	d.mu.Lock()
	var found []*turn
	for t := range d.turns {
		limit := t.limit
		if t.requests > 0 {
			limit = max(limit, maxRequest)
		}
		if t.stuck || now.Sub(t.heard) < limit {
			continue
		}
		t.stuck = true
		found = append(found, t)
		stuckWorkers.WithLabelValues(d.name).Inc()
		stuckTotal.WithLabelValues(d.name).Inc()
		t.logger.Error(nil, "A worker does not return", "queue", d.name, "object", t.object, "since", now.Sub(t.began), "silent", now.Sub(t.heard))
	}
	d.mu.Unlock()
	for _, t := range found {
		if t.abandon != nil {
			t.abandon()
		}
	}
}

// Err returns an error that names the objects from which workers do not return, or
// nil if there is none.
func (d *Watchdog) Err() error {
	now := d.clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	var stuck []*turn
	for t := range d.turns {
		if t.stuck {
			stuck = append(stuck, t)
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	slices.SortFunc(stuck, func(a, b *turn) int {
		if order := a.began.Compare(b.began); order != 0 {
			return order
		}
		return strings.Compare(a.object, b.object)
	})
	var named []string
	for _, t := range stuck[:min(len(stuck), maxNamed)] {
		named = append(named, fmt.Sprintf("%s for %s", t.object, now.Sub(t.began).Round(time.Second)))
	}
	text := strings.Join(named, ", ")
	if more := len(stuck) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%d workers of the queue %s do not return from %s", len(stuck), d.name, text)
}

// Transport wraps the transport of a client, so that a Watchdog sees the requests of
// its workers.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	worker, _ := request.Context().Value(turnKey{}).(*turn)
	if worker == nil {
		return t.next.RoundTrip(request)
	}
	worker.hear(1)
	response, err := t.next.RoundTrip(request)
	if err != nil {
		worker.hear(-1)
		return response, err
	}
	response.Body = &body{ReadCloser: response.Body, closed: sync.OnceFunc(func() { worker.hear(-1) })}
	return response, nil
}

// WrappedRoundTripper returns the transport that is wrapped.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// hear notes that a request begins or ends.
func (t *turn) hear(change int) {
	t.dog.mu.Lock()
	defer t.dog.mu.Unlock()
	t.requests += change
	t.heard = t.dog.clock.Now()
}

// body is the body of an answer, which ends when it is closed.
type body struct {
	io.ReadCloser
	closed func()
}

func (b *body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}
