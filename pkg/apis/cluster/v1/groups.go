package v1

// AgentGroups are the groups on the hub of a cluster's agents. The first is that of
// client certificates and of the ConfigMap aws-auth. The second is for access
// entries: EKS takes no groups there that begin with "system:".
func AgentGroups(cluster string) []string {
	return []string{"system:open-cluster-management:" + cluster, "open-cluster-management:" + cluster}
}
