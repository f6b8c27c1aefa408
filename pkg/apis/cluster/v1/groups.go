package v1

import "strings"

// AgentSecretsAccess is the name of the Role and the RoleBinding in the namespace of a cluster on the
// hub that grant its agents access to the Secrets of ManagedServiceAccounts.
const AgentSecretsAccess = "open-cluster-management:managedcluster:serviceaccount-secrets"

// AllAgentsGroup is a group that client certificates of the agents of any cluster may contain.
const AllAgentsGroup = "system:open-cluster-management:managed-clusters"

// addonGroupPrefix is the prefix of the group of the agents of an add-on on a cluster,
// system:open-cluster-management:cluster:<cluster>:addon:<add-on>.
const addonGroupPrefix = "system:open-cluster-management:cluster:"

// ClusterOfAddonGroup returns the cluster in the name of a group of add-on agents, or "" for other groups.
func ClusterOfAddonGroup(group string) string {
	if rest, found := strings.CutPrefix(group, addonGroupPrefix); found {
		if cluster, _, found := strings.Cut(rest, ":addon:"); found {
			return cluster
		}
	}
	return ""
}

// AgentGroups returns the groups of the agents of a cluster on the hub. The first is used in
// client certificates and in the ConfigMap aws-auth. The second is used in access entries,
// since EKS rejects groups there that start with "system:".
func AgentGroups(cluster string) []string {
	return []string{"system:open-cluster-management:" + cluster, "open-cluster-management:" + cluster}
}
