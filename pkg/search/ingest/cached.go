package ingest

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const cachedFor = time.Second

// cached caches a value for a second.
type cached[T any] struct {
	clock clock.PassiveClock
	load  func(context.Context) (T, error)
	// generation counts invalidations, so that a value that was loaded before an invalidation is not used after it.
	generation atomic.Int64

	// lock has one element, which guards the following fields.
	lock   chan struct{}
	value  T
	loaded time.Time
	// of is the generation of the value, which is valid if it equals the current one.
	of int64
}

func newCached[T any](clock clock.PassiveClock, load func(context.Context) (T, error)) *cached[T] {
	return &cached[T]{clock: clock, load: load, lock: make(chan struct{}, 1), of: -1}
}

// get returns the value, which callers share. If necessary, it loads the value, once for all
// concurrent calls.
func (c *cached[T]) get(ctx context.Context) (T, error) {
	var none T
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return none, ctx.Err()
	}
	current := c.generation.Load()
	if c.of == current && c.clock.Since(c.loaded) < cachedFor {
		return c.value, nil
	}
	began := c.clock.Now()
	value, err := c.load(ctx)
	if err != nil {
		return none, err
	}
	c.value, c.loaded, c.of = value, began, current
	return value, nil
}

// invalidate makes the next call of get load the value.
func (c *cached[T]) invalidate() { c.generation.Add(1) }
