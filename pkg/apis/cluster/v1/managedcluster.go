package v1

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
)

// DefaultLeaseDurationSeconds is the lease duration if the spec of a cluster sets none, or 0.
const DefaultLeaseDurationSeconds int32 = 60

// LeaseSeconds returns the lease duration of the cluster.
func (s *ManagedClusterSpec) LeaseSeconds() int32 {
	if seconds := ptr.Deref(s.LeaseDurationSeconds, 0); seconds > 0 {
		return seconds
	}
	return DefaultLeaseDurationSeconds
}

// Draining reports whether the hub is deleting the ManifestWorks of a deleted cluster, before it revokes the access of the
// cluster. reported is false until the hub has set the condition Deleting.
func (c *ManagedCluster) Draining() (draining, reported bool) {
	if c.DeletionTimestamp == nil || !c.Spec.HubAcceptsClient {
		return false, true
	}
	deleting := meta.FindStatusCondition(c.Status.Conditions, ManagedClusterConditionDeleting)
	if deleting == nil {
		return true, false
	}
	return deleting.Reason == ReasonResourceRemaining || deleting.Reason == ReasonDeletingError, true
}

// ShortNamespaceMessage truncates the message of a condition of a managed namespace to MaxManagedNamespaceMessage bytes.
func ShortNamespaceMessage(message string) string {
	if len(message) <= MaxManagedNamespaceMessage {
		return message
	}
	return strings.ToValidUTF8(message[:MaxManagedNamespaceMessage], "")
}
