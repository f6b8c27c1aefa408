package v1

import "k8s.io/utils/ptr"

// DefaultLeaseDurationSeconds is the lease duration if the spec of a cluster sets none, or 0.
const DefaultLeaseDurationSeconds int32 = 60

// LeaseSeconds returns the lease duration of the cluster.
func (s *ManagedClusterSpec) LeaseSeconds() int32 {
	if seconds := ptr.Deref(s.LeaseDurationSeconds, 0); seconds > 0 {
		return seconds
	}
	return DefaultLeaseDurationSeconds
}
