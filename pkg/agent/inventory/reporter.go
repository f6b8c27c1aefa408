package inventory

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/apis/search/inventory"
)

// timing is how often things are done.
type timing struct {
	// settle is how long after a change a report is sent, so that it has also what
	// comes along with it; interval, plus up to as much again times jitter, how far reports
	// are apart.
	settle, interval time.Duration
	jitter           float64
	// heartbeat, plus up to as much again times jitter, is how long after a report one of no change follows. It
	// tells the hub that the cluster is there, and the agent whether the hub still has what it should have.
	heartbeat time.Duration
	// retry to maxRetry is how long a failed report waits, absent to maxAbsent how long
	// one that the hub does not serve does.
	retry, maxRetry   time.Duration
	absent, maxAbsent time.Duration
	// discover is how often resources are looked for without a reason.
	discover time.Duration
	// patience is how long the first full report waits for resources that fail to be
	// listed, and how long a resource that may not be listed any more is kept.
	patience time.Duration
}

var defaultTiming = timing{
	settle: 100 * time.Millisecond, interval: 2 * time.Second, jitter: 0.5, heartbeat: time.Minute,
	retry: time.Second, maxRetry: 10 * time.Minute, absent: 5 * time.Second, maxAbsent: 3 * time.Minute,
	discover: 5 * time.Minute, patience: time.Minute,
}

// calm is how long all must have been well for the next repair to be made at once.
const calm = 15 * time.Minute

// backoff gives growing pauses from first up to most.
type backoff struct {
	first, most time.Duration
	steps       *wait.Backoff
}

func (b *backoff) next() time.Duration {
	if b.steps == nil {
		b.steps = &wait.Backoff{Duration: b.first, Factor: 2, Jitter: 0.5, Steps: 64, Cap: b.most}
	}
	return min(b.steps.Step(), b.most)
}

func (b *backoff) reset() { b.steps = nil }

// reporter tells the hub what the state has.
type reporter struct {
	state  *state
	row    *clusterRow
	hub    *hub
	timing timing

	failures, absences, repairs backoff
	// earliest is when the next report may be sent, and full when a full one is
	// due; it is zero if none is.
	earliest, full time.Time
	// pending is since when a change is known to wait; zero if none does.
	pending time.Time
	// beat is when a report of no change is due.
	beat time.Time
	// last is when the last report was sent, repaired when the last full one was due
	// because of a difference.
	last, repaired time.Time
	// complaint is the error that was logged last.
	complaint string

	// accepted is called with each batch that the hub took, absent with whether the hub
	// does not serve reports.
	accepted func(*batch)
	absent   func(bool)
}

func newReporter(state *state, row *clusterRow, hub *hub, timing timing) *reporter {
	return &reporter{
		state: state, row: row, hub: hub, timing: timing,
		failures: backoff{first: timing.retry, most: timing.maxRetry},
		absences: backoff{first: timing.absent, most: timing.maxAbsent},
		repairs:  backoff{first: timing.retry, most: timing.maxRetry},
	}
}

// greet asks the hub until it takes reports. It returns false when ctx ends before.
func (r *reporter) greet(ctx context.Context) bool {
	for ctx.Err() == nil {
		if err := r.report(ctx, &batch{greeting: true}); err == nil {
			return true
		}
		pause(ctx, time.Until(r.earliest), nil)
	}
	return false
}

// run reports until ctx ends; first everything, and then what changes.
func (r *reporter) run(ctx context.Context) {
	r.full = time.Now()
	for {
		at, full := r.due()
		if delay := time.Until(at); delay > 0 {
			if !pause(ctx, delay, r.state.changed) {
				return
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		r.row.refresh(r.state)
		b := r.state.begin(full)
		r.pending = time.Time{}
		err := r.report(ctx, b)
		r.state.end(b, err == nil)
		if err == nil {
			r.accepted(b)
		}
	}
}

// due is when the next report is to be sent, and whether it is a full one.
func (r *reporter) due() (at time.Time, full bool) {
	at = latest(r.earliest, r.beat)
	if !r.state.idle() {
		if r.pending.IsZero() {
			r.pending = time.Now()
		}
		at = latest(r.earliest, r.pending.Add(r.timing.settle))
	}
	if !r.full.IsZero() {
		if due := latest(r.earliest, r.full); !due.After(at) {
			return due, true
		}
	}
	return at, false
}

// report sends a batch and decides when the next may follow.
func (r *reporter) report(ctx context.Context, b *batch) error {
	logger := klog.FromContext(ctx)
	start := time.Now()
	response, err := r.hub.send(ctx, b)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.last = time.Now()
	r.beat = r.last.Add(wait.Jitter(r.timing.heartbeat, r.timing.jitter))
	result := "success"
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err):
		result = "unserved"
		r.absent(true)
		r.earliest = r.last.Add(r.absences.next())
		r.complain(logger, "The hub takes no inventory of this cluster; asking again", err)
	case err != nil:
		result = "error"
		r.absent(false)
		delay := r.failures.next()
		if asked, ok := apierrors.SuggestsClientDelay(err); ok {
			delay = max(delay, time.Duration(asked)*time.Second)
		}
		r.earliest = r.last.Add(delay)
		r.complain(logger, "Inventory is not reported", err)
	default:
		r.absent(false)
		r.failures.reset()
		r.absences.reset()
		if !b.greeting {
			r.earliest = r.last.Add(wait.Jitter(r.timing.interval, r.timing.jitter))
		}
		r.complaint = ""
	}
	reports.WithLabelValues(b.kind(), result).Inc()
	reportSeconds.WithLabelValues(b.kind(), result).Observe(r.last.Sub(start).Seconds())
	if err != nil {
		return err
	}
	if b.full {
		r.full = time.Time{}
		logger.V(2).Info("Reported the whole inventory", "resources", b.resources, "edges", b.edges, "took", r.last.Sub(start))
	}
	r.check(logger, b, response)
	return nil
}

// check compares what the hub has with what it should have, and has everything
// reported again if that differs.
func (r *reporter) check(logger klog.Logger, b *batch, response *inventory.Response) {
	var refused *inventory.SyncError
	for _, errs := range [][]inventory.SyncError{
		response.AddErrors, response.UpdateErrors, response.DeleteErrors, response.AddEdgeErrors, response.DeleteEdgeErrors,
	} {
		if len(errs) > 0 {
			refused = &errs[0]
		}
	}
	if b.greeting || refused == nil && response.TotalResources == b.resources && response.TotalEdges == b.edges {
		if r.last.Sub(r.repaired) > calm {
			r.repairs.reset()
		}
		return
	}
	if !r.full.IsZero() {
		return
	}
	// A difference that a full report does not mend must not keep the hub busy.
	r.repaired = r.last
	r.full = r.last.Add(r.repairs.next())
	mismatches.Inc()
	details := []any{"resources", b.resources, "edges", b.edges, "hubResources", response.TotalResources, "hubEdges", response.TotalEdges,
		"report", b.kind(), "retryAfter", r.full.Sub(r.last)}
	if refused != nil {
		details = append(details, "refused", refused.ResourceUID, "reason", refused.Message)
	}
	logger.Info("The hub has another inventory than this cluster; reporting all of it", details...)
}

// complain logs an error loudly once.
func (r *reporter) complain(logger klog.Logger, message string, err error) {
	delay := time.Until(r.earliest).Round(time.Millisecond)
	if r.complaint == err.Error() {
		logger.V(2).Info(message, "err", err, "retryAfter", delay)
		return
	}
	r.complaint = err.Error()
	logger.Info(message, "err", err, "retryAfter", delay)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pause waits, for no longer than a change. It returns false when ctx ends.
func pause(ctx context.Context, delay time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-changed:
	}
	return true
}
