package fair

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// Limiter limits the requests to an API server. Waiting requests are sent in turns: the lanes
// alternate, and within a lane the tenants take turns. If only one tenant sends requests, it can
// use the whole limit.
type Limiter struct {
	clock clock.PassiveClock
	// after calls a function after the given delay.
	after  func(time.Duration, func())
	qps    float32
	bucket *rate.Limiter

	mu    sync.Mutex
	lanes [lanes]*flows[*waiter]
	// ordinaryNext is true if the ordinary lane has the next turn.
	ordinaryNext bool
	// armed is true if a timer runs that grants the next request.
	armed bool
}

var _ flowcontrol.RateLimiter = (*Limiter)(nil)

// waiter is a waiting request. granted is closed when the request may be sent.
type waiter struct {
	tenant  string
	granted chan struct{}
}

// NewLimiter returns a limiter of qps requests per second, with bursts of at most burst requests.
func NewLimiter(qps float32, burst int) *Limiter {
	return newLimiter(qps, burst, clock.RealClock{}, func(delay time.Duration, f func()) { time.AfterFunc(delay, f) })
}

func newLimiter(qps float32, burst int, clock clock.PassiveClock, after func(time.Duration, func())) *Limiter {
	l := &Limiter{clock: clock, after: after, qps: qps, bucket: rate.NewLimiter(rate.Limit(qps), burst)}
	for i := range l.lanes {
		l.lanes[i] = newFlows[*waiter]()
	}
	return l
}

// Wait returns nil when a request with the context may be sent, or the error of the context.
func (l *Limiter) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	class := ClassOf(ctx)
	l.mu.Lock()
	if l.free() {
		l.mu.Unlock()
		return nil
	}
	w := &waiter{tenant: class.Tenant, granted: make(chan struct{})}
	lane := l.lanes[class.lane()]
	lane.push(class.Tenant, w)
	if !l.armed {
		l.arm()
	}
	l.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if lane.remove(class.Tenant, w) {
		return ctx.Err()
	}
	return nil
}

// free takes a token if one is available and no request waits. The caller must hold mu.
func (l *Limiter) free() bool {
	return !l.armed && l.bucket.AllowN(l.clock.Now(), 1)
}

// arm reserves the next token and grants it when it is due. The caller must hold mu.
func (l *Limiter) arm() {
	now := l.clock.Now()
	delay := l.bucket.ReserveN(now, 1).DelayFrom(now)
	l.armed = true
	l.after(delay, l.grant)
}

// grant admits the request that has the next turn.
func (l *Limiter) grant() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	order := [lanes]int{priorityLane, ordinaryLane}
	if l.ordinaryNext {
		order = [lanes]int{ordinaryLane, priorityLane}
	}
	for _, lane := range order {
		if w, ok := l.lanes[lane].next(func(string) bool { return true }); ok {
			l.lanes[lane].remove(w.tenant, w)
			close(w.granted)
			l.ordinaryNext = lane == priorityLane
			break
		}
	}
	if l.lanes[ordinaryLane].len()+l.lanes[priorityLane].len() > 0 {
		l.arm()
	}
}

// TryAccept reports whether a request may be sent immediately.
func (l *Limiter) TryAccept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free()
}

// Accept returns when a request without a tenant may be sent.
func (l *Limiter) Accept() { _ = l.Wait(context.Background()) }

// Stop does nothing, because a limiter has no goroutines.
func (l *Limiter) Stop() {}

// QPS returns the maximum number of requests per second.
func (l *Limiter) QPS() float32 { return l.qps }
