package v1

import "strings"

// AgentSecretsAccess is the name of the Role and the RoleBinding, in the namespace of a
// cluster on the hub, by which its agents reach the Secrets of its managed service accounts.
const AgentSecretsAccess = "open-cluster-management:managedcluster:serviceaccount-secrets"

// AllAgentsGroup is a group that client certificates of agents of any cluster may carry.
const AllAgentsGroup = "system:open-cluster-management:managed-clusters"

// addonGroupPrefix begins the group of the agents of an add-on on a cluster, as OCM names it:
// system:open-cluster-management:cluster:<cluster>:addon:<add-on>.
const addonGroupPrefix = "system:open-cluster-management:cluster:"

// ClusterOfAddonGroup returns the cluster whose agents of an add-on are in a group; empty for other groups.
func ClusterOfAddonGroup(group string) string {
	rest, ok := strings.CutPrefix(group, addonGroupPrefix)
	if !ok {
		return ""
	}
	cluster, _, ok := strings.Cut(rest, ":addon:")
	if !ok {
		return ""
	}
	return cluster
}

// AgentGroups are the groups on the hub of a cluster's agents. The first is that of
// client certificates and of the ConfigMap aws-auth. The second is for access
// entries: EKS takes no groups there that begin with "system:".
func AgentGroups(cluster string) []string {
	return []string{"system:open-cluster-management:" + cluster, "open-cluster-management:" + cluster}
}
