package membership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// LeaseName is the name of the lease of a cluster, in its namespace on the hub.
	LeaseName = "managed-cluster-lease"
	// defaultLease is the duration of a lease until the ManagedCluster is known.
	defaultLease = time.Minute
)

// renewLease renews the lease of the cluster until ctx ends.
func (m *membership) renewLease(ctx context.Context) {
	retries := backoff(firstPause, mostPause)
	var logged complaint
	var lease *coordinationv1.Lease
	for {
		period := m.leasePeriod()
		beatCtx, cancel := context.WithTimeout(ctx, min(requestTimeout, period))
		renewed, err := m.beat(beatCtx, lease)
		cancel()
		if ctx.Err() != nil {
			return
		}
		lease = renewed
		// Jitter of 10 % spreads the requests of all agents.
		delay := wait.Jitter(period*9/10, 0.11)
		if err == nil {
			retries = backoff(firstPause, mostPause)
		} else {
			delay = min(delay, retries.Step())
			m.suspect(err)
		}
		if logged.differs(err) {
			klog.FromContext(ctx).Info("Failed to renew the lease of the cluster", "err", err, "retryAfter", delay)
		}
		if !pause(ctx, delay, m.retimed) {
			return
		}
	}
}

// leasePeriod returns the interval between renewals of the lease.
func (m *membership) leasePeriod() time.Duration {
	if cluster := m.latest.Load(); cluster != nil {
		return time.Duration(cluster.Spec.LeaseSeconds()) * time.Second
	}
	return defaultLease
}

// beat renews the lease, and returns its new version. It reads the lease if that is nil. The hub creates the lease.
func (m *membership) beat(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := m.conn.hub.kube.CoordinationV1().Leases(m.config.ClusterName)
	if lease == nil {
		var err error
		if lease, err = leases.Get(ctx, LeaseName, metav1.GetOptions{}); err != nil {
			return nil, fmt.Errorf("read lease: %w", err)
		}
	}
	updated := lease.DeepCopy()
	updated.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	updated.Spec.HolderIdentity = new(m.known.get(keyAgentName))
	updated, err := leases.Update(ctx, updated, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("renew lease: %w", err)
	}
	return updated, nil
}
