package managedcluster

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// namespaceKey identifies a managed namespace in the list of a cluster.
type namespaceKey struct{ set, name string }

// keepNamespaces keeps the stored list of managed namespaces unless the server itself writes it. Other
// callers may write the conditions of listed namespaces, as agents do to report. A namespace that the
// caller omits keeps its conditions, since an older agent does not know the list.
func keepNamespaces(ctx context.Context, c, old *cluster.ManagedCluster) {
	if definition.ByServer(ctx) {
		return
	}
	reported := make(map[namespaceKey][]metav1.Condition, len(c.Status.ManagedNamespaces))
	for _, namespace := range c.Status.ManagedNamespaces {
		reported[namespaceKey{namespace.ClusterSet, namespace.Name}] = namespace.Conditions
	}
	// The stored object may share the slices.
	kept := slices.Clone(old.Status.ManagedNamespaces)
	for i := range kept {
		if conditions, ok := reported[namespaceKey{kept[i].ClusterSet, kept[i].Name}]; ok {
			kept[i].Conditions = shortened(conditions)
		}
	}
	c.Status.ManagedNamespaces = kept
}

// shortened truncates the messages of conditions. If validation rejected a long message, it would
// reject the whole report.
func shortened(conditions []metav1.Condition) []metav1.Condition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		conditions[i].Message = clusterv1.ShortNamespaceMessage(conditions[i].Message)
	}
	return conditions
}
