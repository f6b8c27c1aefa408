// Package namespaces reports the namespaces of one managed cluster to its hub,
// as ClusterNamespaces in the hub namespace of the cluster.
//
// The unit of work is one namespace, by name. A pass over it (reconcile.go)
// compares the namespace with its report, as two watches show them, and writes
// the report if they differ; so what does not change costs no request, and an
// agent that was away writes the differences. All ClusterNamespaces of that hub
// namespace are the agent's: one that no namespace stands behind is deleted.
//
// Nothing is compared before both watches have a complete view. A managed
// cluster that does not answer is not taken for one without namespaces, and a
// hub that does not have ClusterNamespaces costs the managed cluster no request.
package namespaces
