package managedcluster

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
)

// namespaceKey is the key of a managed namespace in the list of its cluster.
type namespaceKey struct{ set, name string }

// keepNamespaces keeps the list of managed namespaces as it is stored, whatever a caller other than the
// server writes. Of the listed ones the caller may write the conditions: that is how agents report.
// An entry that the caller leaves out keeps its conditions, since an older agent does not know the list.
func keepNamespaces(ctx context.Context, c, old *cluster.ManagedCluster) {
	if callerName(ctx) == user.APIServerUser {
		return
	}
	reported := make(map[namespaceKey][]metav1.Condition, len(c.Status.ManagedNamespaces))
	for _, namespace := range c.Status.ManagedNamespaces {
		reported[namespaceKey{namespace.ClusterSet, namespace.Name}] = namespace.Conditions
	}
	// The slices may still be those of the stored object.
	kept := slices.Clone(old.Status.ManagedNamespaces)
	for i := range kept {
		if conditions, ok := reported[namespaceKey{kept[i].ClusterSet, kept[i].Name}]; ok {
			kept[i].Conditions = shortened(conditions)
		}
	}
	c.Status.ManagedNamespaces = kept
}

// shortened cuts the messages of conditions. To refuse a long one would refuse all else that
// the agent reports in the same request.
func shortened(conditions []metav1.Condition) []metav1.Condition {
	conditions = slices.Clone(conditions)
	for i := range conditions {
		conditions[i].Message = clusterv1.ShortNamespaceMessage(conditions[i].Message)
	}
	return conditions
}
