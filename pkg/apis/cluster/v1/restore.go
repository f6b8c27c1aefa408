package v1

const (
	// RestoredAnnotation is set by the server on every ManagedCluster if its data were restored from a
	// snapshot. Its value identifies the restore.
	RestoredAnnotation = "cluster.open-cluster-management.io/restored"
	// RestoreConfirmedAnnotation is set by an administrator. If its value is that of RestoredAnnotation,
	// the agent removes objects that the restored hub does not know.
	RestoreConfirmedAnnotation = "cluster.open-cluster-management.io/restore-confirmed"

	// ManagedClusterConditionObjectsRetained is True while the agent keeps objects that a restored hub
	// does not know. The message lists them.
	ManagedClusterConditionObjectsRetained = "ObjectsRetained"
	// ReasonUnknownToRestoredHub and ReasonNothingRetained are its reasons.
	ReasonUnknownToRestoredHub = "UnknownToRestoredHub"
	ReasonNothingRetained      = "NothingRetained"
)

// PendingRestore returns the ID of the last restore of the hub's data, or an empty string if there was
// none, or an administrator has confirmed it for this cluster.
func (c *ManagedCluster) PendingRestore() string {
	id := c.Annotations[RestoredAnnotation]
	if c.Annotations[RestoreConfirmedAnnotation] == id {
		return ""
	}
	return id
}
