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
	// removalPeriod is the interval of the search for deleted clusters.
	removalPeriod = 30 * time.Second
	// removalTimeout bounds one search for deleted clusters.
	removalTimeout = time.Minute
	// hubKept is the time that the resources of the hub are kept without a report if no
	// ManagedCluster exists for the hub. The agent of the hub may be unavailable for some time.
	hubKept = 24 * time.Hour
)

// Notify makes Run search for deleted clusters immediately. It does not block.
func (h *Handler) Notify() {
	select {
	case h.notify <- struct{}{}:
	default:
	}
}

// Run removes clusters that do not exist any more from the engine, until ctx ends. It searches for
// them every 30 seconds and after Notify. It logs errors and retries.
func (h *Handler) Run(ctx context.Context) {
	backoff := removalBackoff()
	missing := map[string]time.Time{}
	for ctx.Err() == nil {
		next, err := h.removeMissing(ctx, missing)
		switch {
		case err == nil:
			backoff = removalBackoff()
		case ctx.Err() == nil:
			next = backoff.Step()
			if h.config.Clock.Since(h.started) < removalTimeout {
				// After a start, the list of ManagedClusters is not complete yet.
				klog.FromContext(ctx).V(2).Info("Cannot search for deleted clusters yet", "reason", err, "after", next)
				break
			}
			klog.FromContext(ctx).Error(err, "Cannot remove deleted clusters; trying again", "after", next)
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

// removeMissing removes clusters that have been missing for long enough. missing contains the times
// since when clusters are missing. It returns the delay of the next search.
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

// keepsHub reports whether the resources of a hub without a ManagedCluster are kept. Time during
// which the server did not run does not count.
func (h *Handler) keepsHub(state search.ClusterState, now time.Time) bool {
	last := state.Reported
	if h.started.After(last) {
		last = h.started
	}
	return now.Sub(last) < hubKept
}

// remove removes a cluster, unless the cluster is reporting now or exists again.
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
	h.resources.Delete(cluster)
	removedClusters.Inc()
	klog.FromContext(ctx).Info("Removed the resources of a deleted cluster", "cluster", cluster)
	return true, nil
}
