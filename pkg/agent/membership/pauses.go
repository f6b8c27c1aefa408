package membership

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pauses are exponential delays with a jitter of up to half of the delay.
type pauses struct {
	first, most time.Duration
	// soon is an additional delay before the first one, if set.
	soon time.Duration
	next time.Duration
}

func (p *pauses) step() time.Duration {
	if p.next == 0 && p.soon > 0 {
		p.next = p.first
		return wait.Jitter(p.soon, 0.5)
	}
	pause := max(p.next, p.first)
	p.next = min(2*pause, p.most)
	return wait.Jitter(pause, 0.5)
}

func (p *pauses) reset() { p.next = 0 }

// pause waits for the given time or until again is signalled. It returns false if ctx has ended.
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
