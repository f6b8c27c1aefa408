// Package managednamespaces creates and labels, on a managed cluster, the namespaces that the
// ManagedClusterSets of the cluster require.
//
// The label clusterset.open-cluster-management.io/<hash of the hub> is true on a namespace that the
// hub requires, and false on a namespace that it required before. Each hub has its own label. The
// label is the only state: after a restart, the agent uses it to find the namespaces that are no
// longer required. The agent also labels an existing namespace. The agent deletes no namespace.
//
// A pass over a namespace compares the requirement with an informer of the labelled namespaces, so
// an unchanged namespace costs no request. If a required namespace is deleted or its label is
// changed, the agent restores it immediately.
package managednamespaces
