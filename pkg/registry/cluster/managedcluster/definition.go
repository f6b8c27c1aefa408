// Package managedcluster serves ManagedClusters.
package managedcluster

import (
	"context"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/cluster/validation"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

// Options configure ManagedClusters.
type Options struct {
	// Authorizer decides whether a caller may move a cluster to another cluster set.
	Authorizer authorizer.Authorizer
	// Registration is nil for a server that does not register clusters.
	Registration Registration
	// Decisions receives the store. It may be nil.
	Decisions *Decisions
	// Restore is the ID of the last restore of the server's data, or an empty string.
	Restore string
}

// Definition returns the row of ManagedClusters.
func Definition(o Options) definition.Resource {
	registered := o.Registration != nil
	return definition.Resource{
		Name: "managedclusters", Singular: "managedcluster", Kind: "ManagedCluster",
		ShortNames: []string{"mcl", "mcls"}, Categories: []string{"ocm"},
		ClusterScoped: true,
		Versions:      []schema.GroupVersion{clusterv1.SchemeGroupVersion},
		Strategy: &definition.Strategy[*cluster.ManagedCluster]{
			ServerStatus: "acceptance",
			PrepareForCreate: func(ctx context.Context, c *cluster.ManagedCluster) {
				stampTaints(c, nil)
				defaultClusterSet(c)
				setRestored(c, o.Restore)
				if registered {
					stampCreation(ctx, c)
				}
			},
			PrepareForUpdate: func(ctx context.Context, c, old *cluster.ManagedCluster) {
				stampTaints(c, old.Spec.Taints)
				defaultClusterSet(c)
				if registered {
					stampUpdate(ctx, c, old)
				}
			},
			PrepareForImport: func(ctx context.Context, c *cluster.ManagedCluster) {
				setRestored(c, o.Restore)
				if registered {
					stampImport(ctx, c)
				}
			},
			// Anybody with a bootstrap token creates clusters that the hub has never accepted.
			Replaceable: func(c *cluster.ManagedCluster) bool { return registered && !c.Spec.HubAcceptsClient && !decidedFor(c) },
			PrepareForStatusUpdate: func(ctx context.Context, c, old *cluster.ManagedCluster) {
				if registered {
					keepOwnConditions(ctx, c, old)
					keepNamespaces(ctx, c, old)
				}
			},
			Rules: validation.ManagedCluster,
			SelectableFields: map[string]func(*cluster.ManagedCluster) string{
				"spec.hubAcceptsClient": func(c *cluster.ManagedCluster) string { return strconv.FormatBool(c.Spec.HubAcceptsClient) },
			},
		},
		Wrap: func(store *definition.REST) rest.Storage {
			guard := clusterSetGuard(o.Authorizer)
			if !registered {
				return guard.Wrap(store)
			}
			wrapped := &REST{REST: store, guard: guard, registration: o.Registration}
			if o.Decisions != nil {
				o.Decisions.store.Set(wrapped)
			}
			return wrapped
		},
		// In addition to the defaults, there is room for the managed namespaces and their conditions.
		Limits: quota.ObjectLimits{AnnotationBytes: 128 << 10, StatusBytes: 256 << 10, StatusItems: 1500},
		Columns: definition.Columns[*cluster.ManagedCluster]{
			{Name: "Hub Accepted", Description: "Whether the hub accepts the cluster.", Value: func(c *cluster.ManagedCluster) any {
				return strconv.FormatBool(c.Spec.HubAcceptsClient)
			}},
			{Name: "Managed Cluster URLs", Description: "URLs of the API server of the managed cluster.", Value: urls},
			{Name: "Joined", Description: "Whether the agent of the cluster has joined the hub.", Condition: clusterv1.ManagedClusterConditionJoined},
			{Name: "Available", Description: "Whether the agent can reach the API server of the managed cluster.", Condition: clusterv1.ManagedClusterConditionAvailable},
		},
	}
}

// stampTaints sets the time at which each taint was added. The server ignores the time of the
// request, so that a manifest that was read from a hub can be applied again.
func stampTaints(c *cluster.ManagedCluster, old []clusterv1.Taint) {
	now := metav1.Now().Rfc3339Copy()
	for i := range c.Spec.Taints {
		taint := &c.Spec.Taints[i]
		taint.TimeAdded = now
		for _, before := range old {
			if before.Key == taint.Key && before.Value == taint.Value && before.Effect == taint.Effect {
				taint.TimeAdded = before.TimeAdded
			}
		}
	}
}

func urls(c *cluster.ManagedCluster) any {
	out := make([]string, 0, len(c.Spec.ManagedClusterClientConfigs))
	for _, config := range c.Spec.ManagedClusterClientConfigs {
		out = append(out, config.URL)
	}
	return strings.Join(out, ",")
}
