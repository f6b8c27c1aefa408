package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// removalPeriod is how often clusters that are gone are looked for.
	removalPeriod = 30 * time.Second
	// removalTimeout bounds one look.
	removalTimeout = time.Minute
	// hubKept is for how long what the hub has reported is kept without a report when there
	// is no ManagedCluster for it. Its agent may be away for a while; it has gone for good
	// if it stays away.
	hubKept = 24 * time.Hour
)

// Notify makes Run look at once. It does not wait. Call it when a ManagedCluster is deleted.
func (h *Handler) Notify() {
	select {
	case h.notify <- struct{}{}:
	default:
	}
}

// Run removes clusters from the engine that no longer exist, until ctx ends. It looks
// every 30 seconds and when notified, and needs no event to be right. It returns early if the
// engine is read-only. Failures are logged and tried again.
func (h *Handler) Run(ctx context.Context) {
	backoff := removalBackoff()
	missing := map[string]time.Time{}
	for ctx.Err() == nil {
		next, err := h.removeMissing(ctx, missing)
		switch {
		case err == nil:
			backoff = removalBackoff()
		case errors.Is(err, search.ErrReadOnly):
			return
		case ctx.Err() == nil:
			next = backoff.Step()
			if h.config.Clock.Since(h.started) < removalTimeout {
				// The ManagedClusters are not known yet at every start.
				klog.FromContext(ctx).V(2).Info("clusters that are gone are not looked for yet", "reason", err, "after", next)
				break
			}
			klog.FromContext(ctx).Error(err, "clusters that are gone may still be found; tried again later", "after", next)
		}
		timer := h.config.Clock.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-h.notify:
		case <-timer.C():
		}
		timer.Stop()
	}
}

func removalBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: removalPeriod}
}

// removeMissing removes clusters that have been missing for long enough; missing keeps
// since when. It returns after which time to look again.
func (h *Handler) removeMissing(ctx context.Context, missing map[string]time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	next := removalPeriod
	names, err := h.config.Clusters()
	if err != nil {
		return next, fmt.Errorf("listing ManagedClusters: %w", err)
	}
	existing := make(map[string]struct{}, len(names))
	for _, name := range names {
		existing[name] = struct{}{}
	}
	known, err := h.known.get(ctx)
	if err != nil {
		return next, err
	}
	for name := range missing {
		if _, reported := known[name]; !reported {
			delete(missing, name)
		}
	}
	now := h.config.Clock.Now()
	var failures []error
	for name, state := range known {
		if _, exists := existing[name]; exists || h.hub(name) && h.keepsHub(state, now) {
			delete(missing, name)
			continue
		}
		since, before := missing[name]
		if !before {
			since = now
			missing[name] = since
		}
		if left := h.config.RemoveAfter - now.Sub(since); left > 0 {
			next = min(next, left)
			continue
		}
		removed, err := h.remove(ctx, name)
		if err != nil {
			failures = append(failures, err)
		} else if !removed {
			next = min(next, h.config.RemoveAfter)
		}
	}
	return next, errors.Join(failures...)
}

// keepsHub tells whether the hub is there without a ManagedCluster. While the server was
// down nobody could report.
func (h *Handler) keepsHub(state search.ClusterState, now time.Time) bool {
	last := state.Reported
	if h.started.After(last) {
		last = h.started
	}
	return now.Sub(last) < hubKept
}

// remove removes a cluster unless it reports at this moment, or has come back.
func (h *Handler) remove(ctx context.Context, cluster string) (bool, error) {
	slot, err := h.slots.acquire(cluster, true)
	if err != nil {
		return false, nil
	}
	defer slot.release()
	if h.config.ClusterExists(cluster) {
		return false, nil
	}
	err = h.config.Engine.RemoveCluster(ctx, cluster)
	h.known.invalidate()
	h.states.invalidate()
	if err != nil {
		return false, fmt.Errorf("removing cluster %s: %w", cluster, err)
	}
	h.usage.forget(cluster)
	removedClusters.Inc()
	klog.FromContext(ctx).Info("removed what a cluster that is gone had reported", "cluster", cluster)
	return true, nil
}
