// Package callers limits the concurrent requests, the watches, the access reviews and the write rate of each caller.
package callers

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// The prefix of a caller distinguishes clusters and namespaces, which have several users, from single
// users.
const (
	ofCluster   = "cluster:"
	ofNamespace = "namespace:"
	ofUser      = "user:"
)

// Of returns the caller of a user. All identities of a managed cluster are one caller, and all
// ServiceAccounts of a namespace are one caller, because their owner can create any number of them.
func Of(u user.Info) string {
	if cluster := clusterOf(u); cluster != "" {
		return ofCluster + cluster
	}
	if namespace, _, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return ofNamespace + namespace
	}
	return ofUser + u.GetName()
}

// Exempt reports whether no limit applies to a user. The group system:masters is exempt, as in API Priority
// and Fairness. The server itself is a member of this group.
func Exempt(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// clusterOf returns the cluster whose agent a user is, or "". If there are several, it returns the first
// one by name.
func clusterOf(u user.Info) string {
	prefixes := clusterv1.AgentGroups("")
	first := ""
	for _, group := range u.GetGroups() {
		if group == clusterv1.AllAgentsGroup {
			continue
		}
		for _, prefix := range prefixes {
			// Groups of add-ons have a suffix after the name of the cluster.
			name, found := strings.CutPrefix(group, prefix)
			if found && name != "" && !strings.Contains(name, ":") && (first == "" || name < first) {
				first = name
			}
		}
	}
	return first
}
