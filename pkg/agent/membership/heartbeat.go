package membership

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// LeaseName is the name of the lease of a cluster, in its namespace on the hub.
	LeaseName = "managed-cluster-lease"
	// defaultLease is the duration of a lease until the ManagedCluster is known.
	defaultLease = time.Minute
)

func (m *membership) renewLease(ctx context.Context) {
	var lease *coordinationv1.Lease
	// Jitter of 10 % spreads the requests of all agents.
	period := func() time.Duration { return wait.Jitter(m.leasePeriod()*9/10, 0.11) }
	repeat(ctx, "Failed to renew the lease of the cluster", period, m.leasePeriod(), m.retimed, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, min(requestTimeout, m.leasePeriod()))
		defer cancel()
		lease, err = m.beat(ctx, lease)
		m.suspect(err)
		return err
	})
}

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
