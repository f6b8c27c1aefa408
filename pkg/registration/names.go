package registration

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
)

const (
	// LeaseName is the name of the Lease, in the namespace of a cluster, that its agent renews.
	LeaseName = "managed-cluster-lease"

	// madeForAnnotation is on a namespace that was made for a cluster, and not there
	// before, with what others have in it.
	madeForAnnotation = "register.open-cluster-management.io/made-for"

	accessPrefix = "open-cluster-management:managedcluster:"
	workRole     = "work"

	// allClusters ends the name of a group that certificates of any cluster may carry.
	allClusters = "managed-clusters"
)

// agentRoles are the roles of the hub that agents have in the namespace of their
// cluster. Each is a ClusterRole named with the prefix of access, which comes with
// the manifests.
var agentRoles = []string{"registration", workRole, "serviceaccounts", "namespaces", "inventory"}

// ReservedName tells why a cluster cannot have a name; empty if it can. The roles of
// a cluster of such a name would be those of all clusters, or its namespace would be
// one that the hub itself needs.
func ReservedName(cluster string) string {
	switch {
	case sharesRole(cluster):
		return "the hub has a ClusterRole " + accessName(cluster) + " for the agents of all clusters"
	case cluster == allClusters:
		return "agents of all clusters may be in the group " + clusterv1.AgentGroups(cluster)[0]
	case cluster == "default", strings.HasPrefix(cluster, "kube-"), strings.HasPrefix(cluster, "open-cluster-management"):
		return "the hub needs the namespace " + cluster + " for itself"
	}
	return ""
}

// sharesRole tells whether the ClusterRole that would be that of a cluster is one of all clusters.
func sharesRole(cluster string) bool { return slices.Contains(agentRoles, cluster) }

// accessName is the name of the ClusterRole and the ClusterRoleBinding of a cluster.
func accessName(cluster string) string { return accessPrefix + cluster }

// bindingName is the name of the RoleBinding that gives a cluster one of the roles of agents.
func bindingName(cluster, role string) string { return accessName(cluster) + ":" + role }

// ownBinding tells whether a RoleBinding in the namespace of a cluster is one of its
// access, also one that an earlier version has made, or that by which its agent reaches
// the Secrets of its accounts: those are the hub's own, and so not behind our gate.
func ownBinding(cluster, name string) bool {
	return strings.HasPrefix(name, accessName(cluster)+":") || name == clusterv1.AgentSecretsAccess
}

func clusterRoleRef(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// Agents are the agents of a cluster, as their driver knows them.
type Agents struct {
	// Groups are the groups of the hub that they are in.
	Groups []string
	// Rules are what they may do on the hub because of their driver.
	Rules []rbacv1.PolicyRule
}

// AgentsOf returns the agents of a cluster by the driver of its registration. They are empty
// if the server does not run that driver.
func AgentsOf(drivers []Driver, registration *registerv1alpha1.ManagedClusterRegistration) Agents {
	for _, driver := range drivers {
		if driver.Name() == registration.Spec.Driver {
			return Agents{Groups: driver.Groups(registration), Rules: driver.Rules(registration)}
		}
	}
	return Agents{}
}

// agentSubjects returns the groups as subjects of a binding.
func agentSubjects(groups []string) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for _, group := range groups {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	return subjects
}

func deniedRules(cluster string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"},
		ResourceNames: []string{cluster}, Verbs: []string{"get", "list", "watch"},
	}}
}

func acceptedRules(cluster string, ofDriver []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	own := []string{cluster}
	return append([]rbacv1.PolicyRule{{
		// The empty name is that of reviews without one, by which public klusterlets find out
		// whether they are connected.
		APIGroups: []string{"register.open-cluster-management.io"}, Resources: []string{"managedclusters/clientcertificates"},
		ResourceNames: []string{cluster, ""}, Verbs: []string{"renew"},
	}, {
		APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"},
		ResourceNames: own, Verbs: []string{"get", "list", "watch", "update", "patch"},
	}, {
		APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters/status"},
		ResourceNames: own, Verbs: []string{"patch", "update"},
	}}, ofDriver...)
}
