// Package namespaces reports the namespaces of one managed cluster to its hub,
// as ClusterNamespaces in the hub namespace of the cluster.
//
// A pass over a namespace (controller.go) compares the namespace with its report, both from
// informers, and writes the report if they differ. So an unchanged namespace costs no request. The
// agent deletes a ClusterNamespace in that hub namespace if its namespace does not exist.
//
// Passes begin after both informers have synced. So a managed cluster that does not respond is not
// mistaken for a cluster without namespaces. If the hub does not serve ClusterNamespaces, the agent
// does not watch namespaces.
package namespaces
