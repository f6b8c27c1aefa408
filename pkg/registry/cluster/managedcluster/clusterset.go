package managedcluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/authz/clusterset"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// defaultClusterSet sets the label of the cluster set, so that selectors match it.
func defaultClusterSet(c *cluster.ManagedCluster) {
	metav1.SetMetaDataLabel(&c.ObjectMeta, clusterv1beta2.ClusterSetLabel, clusterv1beta2.ExclusiveSet(c.Labels))
}

// clusterSetGuard refuses to move a cluster into a set or out of it if the caller may not change the
// clusters of that set. Users of the namespaces of a set gain or lose access with its clusters.
func clusterSetGuard(authz authorizer.Authorizer) definition.Guard[*cluster.ManagedCluster] {
	return func(ctx context.Context, c, old *cluster.ManagedCluster) error {
		to := clusterv1beta2.ExclusiveSet(c.Labels)
		if old == nil {
			return clusterset.Join(ctx, authz, to)
		}
		from := clusterv1beta2.ExclusiveSet(old.Labels)
		if to == from {
			return nil
		}
		if err := clusterset.Join(ctx, authz, to); err != nil {
			return err
		}
		return clusterset.Join(ctx, authz, from)
	}
}
