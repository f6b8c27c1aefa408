package v1beta2

// ExclusiveSet returns the name of the set of selector type ExclusiveClusterSetLabel
// that a ManagedCluster with these labels is in. One without the label, or with an
// empty one, has not been written since that became a rule, and is in the default set.
func ExclusiveSet(labels map[string]string) string {
	if set := labels[ClusterSetLabel]; set != "" {
		return set
	}
	return DefaultClusterSet
}
