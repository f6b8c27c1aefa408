package serviceaccount

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// caInterval is the interval at which the CA of the managed cluster is read.
const caInterval = 10 * time.Second

// caBundle is the CA of the managed cluster, or the error of reading it if it was never read.
type caBundle struct {
	content string
	err     error
}

// readCA reads the CA, and triggers a pass over all accounts if it has changed. After an error, the
// last content is kept.
func (c *Controller) readCA(ctx context.Context) {
	content, err := c.caSource()
	before, now := c.ca.Load(), &caBundle{string(content), err}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read the CA of the managed cluster")
		if before != nil && before.err == nil {
			return
		}
	}
	c.ca.Store(now)
	if err == nil && (before == nil || before.err != nil || before.content != now.content) {
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
