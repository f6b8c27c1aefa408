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

	// madeForAnnotation marks a namespace that the server created for a cluster.
	madeForAnnotation = "register.open-cluster-management.io/made-for"

	accessPrefix = "open-cluster-management:managedcluster:"
	workRole     = "work"

	// allClusters is the suffix of a group that certificates of any cluster may contain.
	allClusters = "managed-clusters"
)

// agentRoles are the roles of agents in the namespace of their cluster. Each is a ClusterRole of artifacts/rbac whose
// name begins with accessPrefix.
var agentRoles = []string{"registration", workRole, "serviceaccounts", "namespaces", "inventory"}

// ReservedName returns why a cluster cannot have a name, or an empty string. The roles of such a cluster would be the
// roles of all clusters, or its namespace would be a namespace of the hub.
func ReservedName(cluster string) string {
	switch {
	case sharesRole(cluster):
		return "ClusterRole " + accessName(cluster) + " of the hub belongs to the agents of all clusters"
	case cluster == allClusters:
		return "group " + clusterv1.AgentGroups(cluster)[0] + " may contain the agents of all clusters"
	case cluster == "default", strings.HasPrefix(cluster, "kube-"), strings.HasPrefix(cluster, "open-cluster-management"):
		return "namespace " + cluster + " is reserved for the hub"
	}
	return ""
}

// sharesRole reports whether the ClusterRole of a cluster of this name belongs to all clusters.
func sharesRole(cluster string) bool { return slices.Contains(agentRoles, cluster) }

// accessName returns the name of the ClusterRole and the ClusterRoleBinding of a cluster.
func accessName(cluster string) string { return accessPrefix + cluster }

// bindingName returns the name of the RoleBinding that grants an agent role to a cluster.
func bindingName(cluster, role string) string { return accessName(cluster) + ":" + role }

// ownBinding reports whether a RoleBinding in the namespace of a cluster belongs to its access. This includes bindings
// of builds before v0.1.0 and the binding for Secrets of accounts, since the gate does not guard the hub's Secrets.
func ownBinding(cluster, name string) bool {
	return strings.HasPrefix(name, accessName(cluster)+":") || name == clusterv1.AgentSecretsAccess
}

func clusterRoleRef(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// Agents describes the agents of a cluster according to their driver.
type Agents struct {
	// Groups are the groups of the agents on the hub.
	Groups []string
	// Rules are the rules that the agents need on the hub for their driver.
	Rules []rbacv1.PolicyRule
}

// AgentsOf returns the agents of a cluster by the driver of its registration. They are empty
// if the server does not run that driver.
func AgentsOf(drivers []Driver, registration *registerv1alpha1.ManagedClusterRegistration) Agents {
	driver := driverNamed(drivers, registration.Spec.Driver)
	if driver == nil {
		return Agents{}
	}
	return Agents{Groups: driver.Groups(registration), Rules: driver.Rules(registration)}
}

// driverNamed returns the driver with a name, or nil if the server does not run it.
func driverNamed(drivers []Driver, name registerv1alpha1.RegistrationDriver) Driver {
	for _, driver := range drivers {
		if driver.Name() == name {
			return driver
		}
	}
	return nil
}

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
		// The empty name matches access reviews without a name, with which upstream klusterlets
		// check their connection.
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
