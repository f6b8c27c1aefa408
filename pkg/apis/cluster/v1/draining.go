package v1

import "k8s.io/apimachinery/pkg/api/meta"

// Draining reports whether the hub deletes what it delivered to a deleted cluster, before it takes
// the cluster's access away. said is whether the hub has said anything about that yet.
func (c *ManagedCluster) Draining() (draining, said bool) {
	if c.DeletionTimestamp == nil || !c.Spec.HubAcceptsClient {
		return false, true
	}
	deleting := meta.FindStatusCondition(c.Status.Conditions, ManagedClusterConditionDeleting)
	if deleting == nil {
		return true, false
	}
	return deleting.Reason == ReasonResourceRemaining || deleting.Reason == ReasonDeletingError, true
}
