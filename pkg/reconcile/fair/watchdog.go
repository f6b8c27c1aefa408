package fair

import (
	"cmp"
	"context"
	"fmt"
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
	// maxNamed is the maximum number of stuck workers that an error names.
	maxNamed = 3
)

// Watchdog names workers that do not return. A worker is stuck if it handles an object for longer
// than its limit, which exceeds the deadline of its context.
type Watchdog struct {
	// name is the name of the queue in metrics and logs.
	name  string
	clock clock.WithTicker

	mu    sync.Mutex
	turns map[*turn]struct{}
}

// turn is the period in which a worker handles one object.
type turn struct {
	object string
	limit  time.Duration
	logger klog.Logger
	began  time.Time
	stuck  bool
}

// NewWatchdog returns a watchdog for the workers of a queue.
func NewWatchdog(name string, clock clock.WithTicker) *Watchdog {
	stuckWorkers.WithLabelValues(name).Set(0)
	return &Watchdog{name: name, clock: clock, turns: map[*turn]struct{}{}}
}

// Begin watches a worker that handles an object, until the returned function is called.
func (d *Watchdog) Begin(ctx context.Context, object string, limit time.Duration) (end func()) {
	t := &turn{object: object, limit: limit, logger: klog.FromContext(ctx), began: d.clock.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns[t] = struct{}{}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.turns, t)
		if t.stuck {
			stuckWorkers.WithLabelValues(d.name).Dec()
			t.logger.Info("A worker that was stuck has returned", "queue", d.name, "object", t.object, "took", d.clock.Since(t.began))
		}
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
	d.mu.Lock()
	defer d.mu.Unlock()
	for t := range d.turns {
		if took := d.clock.Since(t.began); !t.stuck && took >= t.limit {
			t.stuck = true
			stuckWorkers.WithLabelValues(d.name).Inc()
			stuckTotal.WithLabelValues(d.name).Inc()
			t.logger.Error(nil, "A worker does not return", "queue", d.name, "object", t.object, "since", took)
		}
	}
}

// Err returns an error that names the objects from which workers do not return, or nil if there are
// none.
func (d *Watchdog) Err() error {
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
	slices.SortFunc(stuck, func(a, b *turn) int { return cmp.Or(a.began.Compare(b.began), strings.Compare(a.object, b.object)) })
	var named []string
	for _, t := range stuck[:min(len(stuck), maxNamed)] {
		named = append(named, fmt.Sprintf("%s for %s", t.object, d.clock.Since(t.began).Round(time.Second)))
	}
	text := strings.Join(named, ", ")
	if more := len(stuck) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%d workers of the queue %s do not return from %s", len(stuck), d.name, text)
}
