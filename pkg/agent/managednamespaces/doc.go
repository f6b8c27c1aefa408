// Package managednamespaces creates and labels, on a managed cluster, the namespaces that the
// ManagedClusterSets of the cluster require there.
//
// The label clusterset.open-cluster-management.io/<hash of the hub> has the value true on a namespace that
// the hub requires, and false on one that it required before. So each hub has its own label, and
// the label is all that the agent keeps: after a restart it finds by it which namespaces are no longer
// required. An existing namespace is labelled as well. No namespace is ever deleted.
//
// The unit of work is one namespace, by name. A pass over it compares what the hub requires with what a
// watch of the labelled namespaces shows, so what does not change costs no request, and a namespace
// that somebody deletes, or whose label somebody changes, is put right at once.
package managednamespaces
