// Package callers bounds the requests and the watches that one caller may have
// open in the server at the same time.
package callers

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// Prefixes of the callers that several users are. A user name cannot imitate one: the
// names of other users have the prefix of users.
const (
	ofCluster   = "cluster:"
	ofNamespace = "namespace:"
	ofUser      = "user:"
)

// Of returns the caller that a user counts as. All identities of one managed cluster
// are one caller, and so are all ServiceAccounts of one namespace: both can be
// created in any number by one owner.
func Of(u user.Info) string {
	if cluster := clusterOf(u); cluster != "" {
		return ofCluster + cluster
	}
	if namespace, _, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return ofNamespace + namespace
	}
	return ofUser + u.GetName()
}

// Exempt reports whether no bound applies to a user: the group system:masters, which
// API Priority and Fairness exempts too, and which the server itself is in.
func Exempt(u user.Info) bool {
	return slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// clusterOf returns the cluster that a user is an agent of; empty for others. It is the
// first one by name, whatever the order of the groups.
func clusterOf(u user.Info) string {
	prefixes := clusterv1.AgentGroups("")
	first := ""
	for _, group := range u.GetGroups() {
		if group == clusterv1.AllAgentsGroup {
			continue
		}
		for _, prefix := range prefixes {
			// Groups of addons have more after the name of the cluster.
			name, found := strings.CutPrefix(group, prefix)
			if found && name != "" && !strings.Contains(name, ":") && (first == "" || name < first) {
				first = name
			}
		}
	}
	return first
}
