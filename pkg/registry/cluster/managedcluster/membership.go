package managedcluster

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/authz/clusterset"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// exclusiveSet is the set that a cluster is in by its label. One without a label,
// which an older server may have stored, is in the default set.
func exclusiveSet(c *cluster.ManagedCluster) string {
	if set := c.Labels[clusterv1beta2.ClusterSetLabel]; set != "" {
		return set
	}
	return clusterv1beta2.DefaultClusterSet
}

// labelSet writes the set of a cluster out, where selectors can see it.
func labelSet(c *cluster.ManagedCluster) {
	set := exclusiveSet(c)
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
			return clusterset.Join(ctx, authz, exclusiveSet(c))
		},
		Update: func(ctx context.Context, c, old *cluster.ManagedCluster) error {
			to, from := exclusiveSet(c), exclusiveSet(old)
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
