package v1

import "k8s.io/apimachinery/pkg/api/meta"

// Draining reports whether the hub is deleting the ManifestWorks of a deleted cluster, before it
// revokes the access of the cluster. reported is false until the hub has set the condition Deleting.
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
