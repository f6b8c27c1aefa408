package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/search"
)

const (
	// removalPeriod is the interval of the search for deleted clusters, and removalRetry the pause after a failure.
	removalPeriod = 30 * time.Second
	removalRetry  = 5 * time.Second
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

// Run removes clusters that no longer exist from the engine, until ctx ends. It searches for
// them every 30 seconds and after Notify. It logs errors and retries.
func (h *Handler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		next := removalPeriod
		if err := h.removeMissing(ctx); err != nil && ctx.Err() == nil {
			next = removalRetry
			if h.config.Clock.Since(h.started) < removalTimeout {
				// After a start, the list of ManagedClusters is not complete yet.
				klog.FromContext(ctx).V(2).Info("Cannot remove deleted clusters yet", "reason", err, "after", next)
			} else {
				klog.FromContext(ctx).Error(err, "Cannot remove deleted clusters; trying again", "after", next)
			}
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

// removeMissing removes the clusters that do not exist.
func (h *Handler) removeMissing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	names, err := h.config.Clusters()
	if err != nil {
		return fmt.Errorf("listing ManagedClusters: %w", err)
	}
	existing := sets.New(names...)
	known, err := h.known.get(ctx)
	if err != nil {
		return err
	}
	now := h.config.Clock.Now()
	var failures []error
	for name, state := range known {
		if !existing.Has(name) && !(h.hub(name) && h.keepsHub(state, now)) {
			failures = append(failures, h.remove(ctx, name))
		}
	}
	return errors.Join(failures...)
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

// remove removes a cluster, unless it exists. The list of ManagedClusters may be out of date.
func (h *Handler) remove(ctx context.Context, cluster string) error {
	slot, err := h.slots.acquire(cluster, true)
	if err != nil {
		return fmt.Errorf("removing cluster %s: %w", cluster, err)
	}
	defer slot.release()
	if deleted, err := h.config.ClusterDeleted(ctx, cluster); err != nil || !deleted {
		return err
	}
	err = h.config.Engine.RemoveCluster(ctx, cluster)
	h.known.invalidate()
	h.states.invalidate()
	if err != nil {
		return fmt.Errorf("removing cluster %s: %w", cluster, err)
	}
	h.usage.forget(cluster)
	h.resources.Delete(cluster)
	removedClusters.Inc()
	klog.FromContext(ctx).Info("Removed the resources of a deleted cluster", "cluster", cluster)
	return nil
}
