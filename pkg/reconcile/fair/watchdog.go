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
	// checkPeriod is the interval at which a Watchdog checks the workers.
	checkPeriod = time.Second
	// maxRequest bounds the time that a worker may wait for a request. The deadlines of all
	// requests are shorter, so a worker that waits longer ignores its deadline.
	maxRequest = time.Minute
	// maxNamed is the maximum number of stuck workers that an error names.
	maxNamed = 3
)

// Watchdog detects workers that do not return. A worker is stuck if it has neither returned nor
// made a request within its limit. While it waits for a response of an API server, it is not stuck,
// because requests have their own deadlines and admission webhooks may use all of that time.
type Watchdog struct {
	// name is the name of the queue in metrics and logs.
	name  string
	clock clock.WithTicker

	mu    sync.Mutex
	turns map[*turn]struct{}
}

// turn is the period in which a worker handles one object.
type turn struct {
	dog *Watchdog
	// object is the kind and name of the object.
	object string
	limit  time.Duration
	logger klog.Logger
	// abandon is called when the worker is stuck. It may be nil.
	abandon func()

	// The watchdog's mu guards the following fields.

	began time.Time
	// heard is the time of the last start or end of a request.
	heard time.Time
	// requests is the number of requests in flight.
	requests int
	stuck    bool
}

// NewWatchdog returns a watchdog for the workers of a queue. If the clock is nil, it uses the real
// clock.
func NewWatchdog(name string, of clock.WithTicker) *Watchdog {
	if of == nil {
		of = clock.RealClock{}
	}
	stuckWorkers.WithLabelValues(name).Set(0)
	return &Watchdog{name: name, clock: of, turns: map[*turn]struct{}{}}
}

type turnKey struct{}

// Begin watches a worker that handles an object, until the returned function is called. Requests
// with the returned context reset the limit, if the transport of the client is wrapped by
// Transport. If the worker makes no request for the limit, it is stuck and abandon is called once,
// unless it is nil.
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

// check marks workers that have become stuck.
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

// Err returns an error that names the objects from which workers do not return, or nil if there are
// none.
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

// Transport wraps the transport of a client, so that a Watchdog receives the requests of its
// workers.
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

// WrappedRoundTripper returns the wrapped transport.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// hear records the start or the end of a request.
func (t *turn) hear(change int) {
	t.dog.mu.Lock()
	defer t.dog.mu.Unlock()
	t.requests += change
	t.heard = t.dog.clock.Now()
}

// body is the body of a response. The request ends when it is closed.
type body struct {
	io.ReadCloser
	closed func()
}

func (b *body) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}
