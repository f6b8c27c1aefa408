package v1beta2

// ExclusiveSet returns the name of the ManagedClusterSet of selector type ExclusiveClusterSetLabel
// that contains a ManagedCluster with these labels. The server sets the label on each write, so that
// a cluster without it is in the default set.
func ExclusiveSet(labels map[string]string) string {
	if set := labels[ClusterSetLabel]; set != "" {
		return set
	}
	return DefaultClusterSet
}
