package liveness

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// Reasons of the conditions.
const (
	ReasonLeaseUpdateStopped = "ManagedClusterLeaseUpdateStopped"
	ReasonClockSynced        = "ManagedClusterClockSynced"
	ReasonClockOutOfSync     = "ManagedClusterClockOutOfSync"
)

const (
	// graceLeases is for how many durations of its Lease a cluster need not renew it.
	graceLeases = 5
	// longestLeaseDuration keeps what is computed with the durations of Leases within bounds.
	longestLeaseDuration = 365 * 24 * time.Hour
)

// sighting is what was seen of the Lease of a cluster, by the clock of the hub.
type sighting struct {
	cluster types.UID
	// at is when the last renewal was seen, or when the cluster was seen first.
	at time.Time
	// renewTime is that of the last renewal, by the clock of the cluster; zero if there
	// was none.
	renewTime time.Time
	// readTime is that of a renewal that the hub knew of before the cache did.
	readTime time.Time
	// outOfSync tells that the clocks differed at the last renewal.
	outOfSync bool
	// clockSynced is what renewals have said of the clock of the cluster; nil if nothing.
	// It is kept, since it may take more than one try to write it.
	clockSynced *metav1.Condition
	// expired tells that the cluster was found to be unreachable since.
	expired bool
}

// renewed takes note of a renewal, if there was one, and of what it says of the clock of
// the cluster.
func (s *sighting) renewed(lease *coordinationv1.Lease, cluster *clusterv1.ManagedCluster, now time.Time) {
	renewed := renewTime(lease)
	if renewed.IsZero() || renewed.Equal(s.renewTime) {
		return
	}
	s.at, s.renewTime, s.expired = now, renewed, false

	limit := leaseDuration(cluster)
	if meta.IsStatusConditionFalse(cluster.Status.Conditions, clusterv1.ManagedClusterConditionClockSynced) {
		// So that a clock at the limit is not in sync and out of it by turns.
		limit /= 2
	}
	skew := renewed.Sub(now)
	before := s.outOfSync
	s.outOfSync = skew.Abs() > limit
	switch {
	case !s.outOfSync:
		s.clockSynced = &metav1.Condition{
			Type: clusterv1.ManagedClusterConditionClockSynced, Status: metav1.ConditionTrue, Reason: ReasonClockSynced,
			Message: "The clock of the managed cluster agrees with that of the hub.",
		}
	case before:
		// One that is late may have been seen late; two are not.
		s.clockSynced = &metav1.Condition{
			Type: clusterv1.ManagedClusterConditionClockSynced, Status: metav1.ConditionFalse, Reason: ReasonClockOutOfSync,
			Message: fmt.Sprintf("The clock of the managed cluster differs from that of the hub by more than %s, so that certificates and tokens may not be valid for both.", leaseDuration(cluster)),
		}
	}
}

// stopped is the condition of a cluster that is not heard of any more.
func stopped(cluster *clusterv1.ManagedCluster) metav1.Condition {
	return metav1.Condition{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionUnknown, Reason: ReasonLeaseUpdateStopped,
		Message: fmt.Sprintf("The agent of the managed cluster has not renewed its lease for %s.", gracePeriod(cluster)),
	}
}

func setCondition(cluster *clusterv1.ManagedCluster, condition metav1.Condition, now time.Time) {
	condition.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	if old := meta.FindStatusCondition(cluster.Status.Conditions, condition.Type); old != nil && old.Status == condition.Status && old.Reason == condition.Reason {
		return // its text alone is no reason to write
	}
	meta.SetStatusCondition(&cluster.Status.Conditions, condition)
}

func isUnknown(cluster *clusterv1.ManagedCluster) bool {
	return meta.IsStatusConditionPresentAndEqual(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown)
}

// renewTime is zero for a Lease that is not there or was never renewed, as the one that
// the hub makes for a cluster.
func renewTime(lease *coordinationv1.Lease) time.Time {
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Equal(lease.Spec.AcquireTime) {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

func leaseDuration(cluster *clusterv1.ManagedCluster) time.Duration {
	return min(time.Duration(cluster.Spec.LeaseSeconds())*time.Second, longestLeaseDuration)
}

func gracePeriod(cluster *clusterv1.ManagedCluster) time.Duration {
	return graceLeases * leaseDuration(cluster)
}
