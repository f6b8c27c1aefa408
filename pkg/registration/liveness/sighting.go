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
	// graceLeases is the grace period in durations of the Lease.
	graceLeases = 5
	// longestLeaseDuration bounds the durations, so that computations with them do not overflow.
	longestLeaseDuration = 365 * 24 * time.Hour
)

// sighting contains the observations of a cluster's Lease. Times are of the hub's clock.
type sighting struct {
	cluster types.UID
	// at is the time at which the last renewal, or the cluster itself, was observed.
	at time.Time
	// renewTime is the last renewal by the clock of the cluster, or zero.
	renewTime time.Time
	// readTime is a renewal that was read from the hub before the cache contained it.
	readTime time.Time
	// outOfSync means that the clocks differed at the last renewal.
	outOfSync bool
	// clockSynced is the condition according to the last renewals, or nil. It is kept until it is written.
	clockSynced *metav1.Condition
	// expired means that the cluster was unreachable after the last renewal.
	expired bool
}

// renewed records a renewal, if there is one, and the state of the cluster's clock.
func (s *sighting) renewed(lease *coordinationv1.Lease, cluster *clusterv1.ManagedCluster, now time.Time) {
	renewed := renewTime(lease)
	if renewed.IsZero() || renewed.Equal(s.renewTime) {
		return
	}
	s.at, s.renewTime, s.expired = now, renewed, false

	limit := leaseDuration(cluster)
	if meta.IsStatusConditionFalse(cluster.Status.Conditions, clusterv1.ManagedClusterConditionClockSynced) {
		// The hysteresis prevents the condition from alternating for a clock at the limit.
		limit /= 2
	}
	skew := renewed.Sub(now)
	before := s.outOfSync
	s.outOfSync = skew.Abs() > limit
	switch {
	case !s.outOfSync:
		s.clockSynced = &metav1.Condition{
			Type: clusterv1.ManagedClusterConditionClockSynced, Status: metav1.ConditionTrue, Reason: ReasonClockSynced,
			Message: "The clocks of the managed cluster and the hub agree.",
		}
	case before:
		// A single late renewal may only have been observed late.
		s.clockSynced = &metav1.Condition{
			Type: clusterv1.ManagedClusterConditionClockSynced, Status: metav1.ConditionFalse, Reason: ReasonClockOutOfSync,
			Message: fmt.Sprintf("The clocks of the managed cluster and the hub differ by more than %s. Certificates and tokens may not be valid for both.", leaseDuration(cluster)),
		}
	}
}

// stopped returns the condition of an unreachable cluster.
func stopped(cluster *clusterv1.ManagedCluster) metav1.Condition {
	return metav1.Condition{
		Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionUnknown, Reason: ReasonLeaseUpdateStopped,
		Message: fmt.Sprintf("The agent of the managed cluster has not renewed its lease for %s.", gracePeriod(cluster)),
	}
}

func setCondition(cluster *clusterv1.ManagedCluster, condition metav1.Condition, now time.Time) {
	condition.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	if old := meta.FindStatusCondition(cluster.Status.Conditions, condition.Type); old != nil && old.Status == condition.Status && old.Reason == condition.Reason {
		return // a different message alone is not written
	}
	meta.SetStatusCondition(&cluster.Status.Conditions, condition)
}

func isUnknown(cluster *clusterv1.ManagedCluster) bool {
	return meta.IsStatusConditionPresentAndEqual(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable, metav1.ConditionUnknown)
}

// stateOf returns the state of a cluster in the metric.
func stateOf(cluster *clusterv1.ManagedCluster) string {
	available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
	switch {
	case !cluster.Spec.HubAcceptsClient:
		return "unaccepted"
	case !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ManagedClusterConditionJoined) || available == nil:
		return "joining"
	case available.Status == metav1.ConditionTrue:
		return "available"
	case available.Status == metav1.ConditionFalse:
		return "unavailable"
	default:
		return "unreachable"
	}
}

// renewTime returns the time of the last renewal, or zero for a missing Lease and for the one that the hub creates.
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
