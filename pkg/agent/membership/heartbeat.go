package membership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// LeaseName is the name of the lease of a cluster, in its namespace on the hub.
	LeaseName = "managed-cluster-lease"
	// defaultLease is the duration of a lease until the ManagedCluster is known.
	defaultLease = time.Minute
)

// heartbeat renews the lease of the cluster.
type heartbeat struct {
	*membership
	lease *coordinationv1.Lease
}

// run renews the lease until ctx ends.
func (h *heartbeat) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	retries := pauses{first: firstPause, most: mostPause}
	var complaint string
	for {
		period := h.period()
		beatCtx, cancel := context.WithTimeout(ctx, min(requestTimeout, period))
		err := h.beat(beatCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		// Jitter of 10 % spreads the requests of all agents.
		delay := wait.Jitter(period*9/10, 0.11)
		if err == nil {
			retries.reset()
			complaint = ""
		} else {
			h.lease = nil
			delay = min(delay, retries.step())
			if complaint != err.Error() {
				complaint = err.Error()
				logger.Info("Failed to renew the lease of the cluster", "err", err, "retryAfter", delay)
			}
			h.suspect(err)
		}
		if !h.wait(ctx, period, delay) {
			return
		}
	}
}

// wait waits until the next renewal is due, or the hub shortens the period. It returns false if ctx
// has ended.
func (h *heartbeat) wait(ctx context.Context, period, delay time.Duration) bool {
	due := time.Now().Add(delay)
	for pause(ctx, time.Until(due), h.retimed) {
		if h.period() < period || !time.Now().Before(due) {
			return true
		}
	}
	return false
}

// period returns the interval between renewals of the lease.
func (h *heartbeat) period() time.Duration {
	if cluster := h.latest.Load(); cluster != nil {
		return time.Duration(cluster.Spec.LeaseSeconds()) * time.Second
	}
	return defaultLease
}

// beat renews the lease. The hub creates the lease.
func (h *heartbeat) beat(ctx context.Context) error {
	leases := h.conn.hub.kube.CoordinationV1().Leases(h.config.ClusterName)
	if h.lease == nil {
		live, err := leases.Get(ctx, LeaseName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read lease: %w", err)
		}
		h.lease = live
	}
	updated := h.lease.DeepCopy()
	updated.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	updated.Spec.HolderIdentity = ptr.To(h.known.get(keyAgentName))
	updated, err := leases.Update(ctx, updated, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		h.lease = nil
		return h.beat(ctx)
	}
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	h.lease = updated
	return nil
}
