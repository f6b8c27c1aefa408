package visibility

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// classesTTL is how long the classes of the hub are cached.
const classesTTL = time.Second

// classes caches the classes of the hub's resources.
type classes struct {
	read func(ctx context.Context) ([]Class, uint64, error)

	mu      sync.Mutex
	known   []Class
	version uint64
	at      time.Time
}

// get returns the classes and their version. Callers must not modify the classes.
func (c *classes) get(ctx context.Context) ([]Class, uint64, error) {
	c.mu.Lock()
	known, version, at := c.known, c.version, c.at
	c.mu.Unlock()
	now := time.Now()
	if !at.IsZero() && now.Sub(at) < classesTTL {
		return known, version, nil
	}
	known, version, err := c.read(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the resources of the hub: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.Before(c.at) {
		c.known, c.version, c.at = known, version, now
	}
	return known, version, nil
}
