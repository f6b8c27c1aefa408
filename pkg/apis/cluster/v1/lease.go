package v1

import "k8s.io/utils/ptr"

// DefaultLeaseDurationSeconds is the duration of the lease of a cluster whose spec gives none, or 0.
const DefaultLeaseDurationSeconds int32 = 60

// LeaseSeconds returns the duration of the lease of the cluster.
func (s *ManagedClusterSpec) LeaseSeconds() int32 {
	if seconds := ptr.Deref(s.LeaseDurationSeconds, 0); seconds > 0 {
		return seconds
	}
	return DefaultLeaseDurationSeconds
}
