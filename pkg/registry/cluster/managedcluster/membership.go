package managedcluster

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/authz/clusterset"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// labelSet writes the set of a cluster out, where selectors can see it.
func labelSet(c *cluster.ManagedCluster) {
	set := clusterv1beta2.ExclusiveSet(c.Labels)
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[clusterv1beta2.ClusterSetLabel] = set
}

// membership lets a cluster into a set, or out of it, only for whoever may change
// which clusters that set has: the users of its namespaces gain or lose it.
func membership(authz authorizer.Authorizer) definition.Guard[*cluster.ManagedCluster] {
	return definition.Guard[*cluster.ManagedCluster]{
		Create: func(ctx context.Context, c *cluster.ManagedCluster) error {
			return clusterset.Join(ctx, authz, clusterv1beta2.ExclusiveSet(c.Labels))
		},
		Update: func(ctx context.Context, c, old *cluster.ManagedCluster) error {
			to, from := clusterv1beta2.ExclusiveSet(c.Labels), clusterv1beta2.ExclusiveSet(old.Labels)
			if to == from {
				return nil
			}
			if err := clusterset.Join(ctx, authz, to); err != nil {
				return err
			}
			return clusterset.Join(ctx, authz, from)
		},
	}
}
