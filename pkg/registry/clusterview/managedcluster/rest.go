// Package managedcluster serves the ManagedClusters that the caller may get.
package managedcluster

import (
	"strconv"

	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/view"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/search"
)

// NewREST returns the storage. The informer is of ManagedClusters.
func NewREST(clusters cache.SharedIndexInformer, scopes search.Scopes) (*view.REST, error) {
	source, err := view.NewSource(clusterviewv1.Resource("managedclusters"), clusters, scopes, func(source view.Object) view.Object {
		c := source.(*clusterv1.ManagedCluster)
		return &clusterviewv1.ManagedCluster{ObjectMeta: c.ObjectMeta, Spec: c.Spec, Status: c.Status}
	})
	if err != nil {
		return nil, err
	}
	return view.NewREST(view.Options{
		Base: definition.Base{
			Object: &clusterviewv1.ManagedCluster{}, Objects: &clusterviewv1.ManagedClusterList{},
			Singular: "managedcluster", Short: []string{"mcv", "mcvs"},
		},
		Lister: source,
		Table: definition.NewTableConvertor(definition.Columns[*clusterviewv1.ManagedCluster]{
			{Name: "Hub Accepted", Description: "Whether the hub accepts the agent of the cluster.", Value: func(c *clusterviewv1.ManagedCluster) any {
				return strconv.FormatBool(c.Spec.HubAcceptsClient)
			}},
			{Name: "Joined", Description: "Whether the agent of the cluster has joined.", Condition: clusterv1.ManagedClusterConditionJoined},
			{Name: "Available", Description: "Whether the cluster is available.", Condition: clusterv1.ManagedClusterConditionAvailable},
		}),
	}), nil
}
