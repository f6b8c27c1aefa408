package ingest

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const cachedFor = time.Second

// cached caches a value for a second.
type cached[T any] struct {
	clock clock.PassiveClock
	load  func(context.Context) (T, error)
	// loading is held while the value is loaded.
	loading chan struct{}

	lock   sync.Mutex
	value  T
	loaded time.Time
	valid  bool
	// generation counts invalidations, so that a value that was loaded before an invalidation is
	// not cached after it.
	generation int
}

func newCached[T any](clock clock.PassiveClock, load func(context.Context) (T, error)) *cached[T] {
	return &cached[T]{clock: clock, load: load, loading: make(chan struct{}, 1)}
}

// get returns the value, which callers share. If necessary, it loads the value, once for all
// concurrent calls.
func (c *cached[T]) get(ctx context.Context) (T, error) {
	var none T
	if value, _, ok := c.current(); ok {
		return value, nil
	}
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
	case <-ctx.Done():
		return none, ctx.Err()
	}
	value, generation, ok := c.current()
	if ok {
		return value, nil
	}
	began := c.clock.Now()
	value, err := c.load(ctx)
	if err != nil {
		return none, err
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.generation == generation {
		c.value, c.loaded, c.valid = value, began, true
	}
	return value, nil
}

func (c *cached[T]) current() (T, int, bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.value, c.generation, c.valid && c.clock.Since(c.loaded) < cachedFor
}

// invalidate makes the next call of get load the value.
func (c *cached[T]) invalidate() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.generation++
	c.valid = false
}
