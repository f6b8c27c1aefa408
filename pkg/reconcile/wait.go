package reconcile

import (
	"context"
	"time"
)

// Pause waits for the given time or until again is signalled. It returns false if ctx has ended.
func Pause(ctx context.Context, length time.Duration, again <-chan struct{}) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-again:
	}
	return ctx.Err() == nil
}

// Signal wakes the reader of a channel that holds one signal.
func Signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Complaint is the last logged error of a repeated operation.
type Complaint struct{ text string }

// Differs reports whether an error must be logged, because it differs from the previous one.
func (c *Complaint) Differs(err error) bool {
	before := c.text
	if c.text = ""; err != nil {
		c.text = err.Error()
	}
	return err != nil && c.text != before
}
