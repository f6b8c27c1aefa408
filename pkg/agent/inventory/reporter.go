package inventory

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// Timing contains the intervals of a Controller.
type Timing struct {
	// Settle is the delay between a change and its report, so that the report includes changes that
	// follow immediately. Interval is the time between reports. A random time of up to Jitter times
	// Interval is added.
	Settle, Interval time.Duration
	Jitter           float64
	// Urgent is the minimum time between reports if roles or bindings have changed.
	Urgent time.Duration
	// Heartbeat is the time after which the Controller sends a report without changes. A random
	// time of up to Jitter times Heartbeat is added. The report shows the hub that the cluster is
	// connected. The response shows the agent whether the hub lacks data.
	Heartbeat time.Duration
	// Retry and MaxRetry are the shortest and the longest delay after a failed report. Absent and
	// MaxAbsent are these delays if the hub does not serve inventories.
	Retry, MaxRetry   time.Duration
	Absent, MaxAbsent time.Duration
	// Discover is the interval between discoveries without a trigger.
	Discover time.Duration
	// Patience is the time that the first full report waits for resources that fail to be listed.
	// It is also the time that the objects of a resource are kept after the agent lost the
	// permission to list them.
	Patience time.Duration
}

// DefaultTiming is the timing of an agent.
var DefaultTiming = Timing{
	Settle: 100 * time.Millisecond, Interval: 2 * time.Second, Jitter: 0.5, Urgent: 500 * time.Millisecond, Heartbeat: time.Minute,
	Retry: time.Second, MaxRetry: 10 * time.Minute, Absent: 5 * time.Second, MaxAbsent: 3 * time.Minute,
	Discover: 5 * time.Minute, Patience: time.Minute,
}

// calm is the time after a repair after which the next repair is not delayed.
const calm = 15 * time.Minute

// backoff returns delays that double, with a jitter of up to half of the delay. None exceeds most.
func backoff(first, most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Cap: most * 2 / 3, Factor: 2, Jitter: 0.5, Steps: math.MaxInt}
}

type reporter struct {
	state  *state
	hub    *hub
	timing Timing

	failures, absences, repairs wait.Backoff
	// earliest is the earliest time of the next report, or urgent if roles or bindings have changed. full is the time
	// of the next full report, or zero if none is due.
	earliest, urgent, full time.Time
	// pending is the time since which a change has been waiting, or zero if no change waits.
	pending time.Time
	// beat is the time of the next report without changes.
	beat time.Time
	// last is the time of the last report. repaired is the time of the last full report
	// because of a difference.
	last, repaired time.Time
	// probe is true if the next report is an empty one, because the hub may have received the last one and did not
	// apply it. refused is the time since which the hub applies empty reports only, or zero.
	probe   bool
	refused time.Time
	logged  reconcile.Complaint

	// synced is true if the hub has accepted a full report. unserved is true if it does not serve
	// inventories to this agent.
	synced, unserved atomic.Bool
}

func newReporter(state *state, hub *hub, timing Timing) *reporter {
	r := &reporter{state: state, hub: hub, timing: timing, repairs: backoff(timing.Retry, timing.MaxRetry)}
	r.resetDelays()
	return r
}

func (r *reporter) resetDelays() {
	r.failures, r.absences = backoff(r.timing.Retry, r.timing.MaxRetry), backoff(r.timing.Absent, r.timing.MaxAbsent)
}

// greet sends empty reports until the hub accepts one. It returns false if ctx ends first.
func (r *reporter) greet(ctx context.Context) bool {
	for ctx.Err() == nil {
		if err := r.report(ctx, &batch{greeting: true}); err == nil {
			return true
		}
		reconcile.Pause(ctx, time.Until(r.earliest), nil)
	}
	return false
}

// run reports until ctx ends. The first report is a full one.
func (r *reporter) run(ctx context.Context) {
	r.full = time.Now()
	for {
		at, full := r.due()
		if delay := time.Until(at); delay > 0 {
			if !reconcile.Pause(ctx, delay, r.state.changed) {
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		b := &batch{greeting: true}
		if !r.probe {
			b = r.state.begin(full)
			r.pending = time.Time{}
		}
		if err := r.report(ctx, b); err == nil && !b.greeting {
			r.state.applied()
			r.synced.Store(r.synced.Load() || b.full)
			objects.Set(float64(b.resources))
		}
	}
}

// due returns the time of the next report, and reports whether it is a full report.
func (r *reporter) due() (at time.Time, full bool) {
	at = latest(r.earliest, r.beat)
	if idle, urgent := r.state.idle(); !idle {
		if r.pending.IsZero() {
			r.pending = time.Now()
		}
		earliest := r.earliest
		if urgent {
			earliest = r.urgent
		}
		at = latest(earliest, r.pending.Add(r.timing.Settle))
	}
	if !r.full.IsZero() {
		if due := latest(r.earliest, r.full); !due.After(at) {
			return due, true
		}
	}
	return at, false
}

func (r *reporter) report(ctx context.Context, b *batch) error {
	logger := klog.FromContext(ctx)
	start := time.Now()
	response, err := r.hub.send(ctx, b)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.last = time.Now()
	r.beat = r.last.Add(wait.Jitter(r.timing.Heartbeat, r.timing.Jitter))
	result := "success"
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err):
		result = "unserved"
		r.unserved.Store(true)
		r.probe, r.refused = false, time.Time{}
		r.earliest = r.last.Add(r.absences.Step())
		r.urgent = r.earliest
		r.complain(logger, "The hub takes no inventory of this cluster; asking again", err)
	case err != nil:
		result = "error"
		r.unserved.Store(false)
		delay := r.failures.Step()
		if asked, ok := apierrors.SuggestsClientDelay(err); ok {
			delay = max(delay, time.Duration(asked)*time.Second)
		}
		r.earliest = r.last.Add(delay)
		r.urgent = r.earliest
		r.probe = arrived(err)
		if !r.probe || b.greeting {
			r.refused = time.Time{} // the content is not the reason
		} else if r.refused.IsZero() {
			r.refused = r.last
		}
		always := apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsInvalid(err)
		if always || !r.refused.IsZero() && r.last.Sub(r.refused) > r.timing.Heartbeat {
			r.full = r.earliest // the hub would refuse the same report again
		}
		r.complain(logger, "Inventory is not reported", err)
	default:
		r.unserved.Store(false)
		r.probe = false
		if !b.greeting {
			r.refused = time.Time{}
			r.earliest = r.last.Add(wait.Jitter(r.timing.Interval, r.timing.Jitter))
			r.urgent = r.last.Add(r.timing.Urgent)
		}
		if r.refused.IsZero() {
			r.resetDelays()
			r.logged.Differs(nil)
		}
	}
	reports.WithLabelValues(b.kind(), result).Inc()
	if err != nil {
		return err
	}
	if b.full {
		r.full = time.Time{}
	}
	if r.state.accept(response.Access) {
		// The hub has been replaced by another release.
		r.full = r.last
	}
	if b.full {
		logger.V(2).Info("Reported the whole inventory", "resources", b.resources, "edges", b.edges, "took", r.last.Sub(start))
	}
	r.check(logger, b, response)
	return nil
}

// arrived reports whether the hub may have received a report that it did not apply. Then the content may be the
// reason.
func arrived(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return errors.Is(err, context.DeadlineExceeded)
	}
	return !apierrors.IsTooManyRequests(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// check compares the totals of the hub with the totals of the agent. If they differ, it schedules a
// full report.
func (r *reporter) check(logger klog.Logger, b *batch, response *inventory.Response) {
	refused := slices.Concat(response.AddErrors, response.UpdateErrors, response.DeleteErrors,
		response.AddEdgeErrors, response.DeleteEdgeErrors)
	if b.greeting || len(refused) == 0 && response.TotalResources == b.resources && response.TotalEdges == b.edges {
		if r.last.Sub(r.repaired) > calm {
			r.repairs = backoff(r.timing.Retry, r.timing.MaxRetry)
		}
		return
	}
	if !r.full.IsZero() {
		return
	}
	// The delay grows, so that full reports do not load the hub if they fail to resolve the
	// difference.
	r.repaired = r.last
	r.full = r.last.Add(r.repairs.Step())
	details := []any{"resources", b.resources, "edges", b.edges, "hubResources", response.TotalResources, "hubEdges", response.TotalEdges,
		"report", b.kind(), "retryAfter", r.full.Sub(r.last)}
	if len(refused) > 0 {
		details = append(details, "refused", refused[0].ResourceUID, "reason", refused[0].Message)
	}
	logger.Info("The inventory on the hub differs from this cluster; reporting all resources", details...)
}

// complain logs an error at the default level once, and repetitions at a higher level.
func (r *reporter) complain(logger klog.Logger, message string, err error) {
	if !r.logged.Differs(err) {
		logger = logger.V(2)
	}
	logger.Info(message, "err", err, "retryAfter", time.Until(r.earliest).Round(time.Millisecond))
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
