package registration

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pauses are growing waits between tries, each up to half as long again by chance, so
// that agents that failed together do not come back together.
type pauses struct {
	first, most time.Duration
	next        time.Duration
}

func (p *pauses) step() time.Duration {
	if p.next == 0 {
		p.next = p.first
	}
	pause := p.next
	p.next = min(2*p.next, p.most)
	return wait.Jitter(pause, 0.5)
}

func (p *pauses) reset() { p.next = 0 }

// pause waits until the time is over, or for again. It reports whether ctx goes on.
func pause(ctx context.Context, length time.Duration, again <-chan struct{}) bool {
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
