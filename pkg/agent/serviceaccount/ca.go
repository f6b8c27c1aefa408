package serviceaccount

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// caInterval is the interval at which the CA of the managed cluster is read.
const caInterval = 10 * time.Second

// caBundle is the last known CA of the managed cluster.
type caBundle struct {
	mu      sync.Mutex
	content []byte
	// version counts the changes of content. It is zero before the first read.
	version uint64
	err     error
}

// set stores the result of reading the CA, and reports whether the content has changed. After an
// error, the content is kept.
func (b *caBundle) set(content []byte, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if err != nil || b.version > 0 && bytes.Equal(b.content, content) {
		return false
	}
	b.content, b.version = content, b.version+1
	return true
}

func (b *caBundle) get() ([]byte, uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.version > 0 {
		return b.content, b.version, nil
	}
	if b.err != nil {
		return nil, 0, b.err
	}
	return nil, 0, errors.New("not read yet")
}

// readCA reads the CA, and triggers a pass over all accounts if it has changed.
func (c *Controller) readCA(ctx context.Context) {
	content, err := c.caSource()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read the CA of the managed cluster")
	}
	if c.ca.set(content, err) {
		klog.FromContext(ctx).V(2).Info("The CA of the managed cluster has changed")
		c.enqueueAll()
	}
}

// watchCA reads the CA periodically until ctx ends.
func (c *Controller) watchCA(ctx context.Context) {
	ticker := c.clock.NewTicker(caInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			c.readCA(ctx)
		}
	}
}
