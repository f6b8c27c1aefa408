package apiserver

import (
	"open-cluster-management.io/hub-apiserver/pkg/clustersets"
)

// newResolver resolves cluster sets wherever the hub keeps them.
func newResolver(informers informerFactories) (*clustersets.Resolver, error) {
	sets := informers.sets.Cluster().V1beta2()
	return clustersets.NewResolver(sets.ManagedClusterSets(), sets.ManagedClusterSetBindings(), informers.clusters.Cluster().V1().ManagedClusters())
}

// addClusterSets looks after cluster sets where this server keeps them.
func (s *Server) addClusterSets(resolver *clustersets.Resolver) {
	if s.clients.sets != s.clients.own {
		return
	}
	sets := s.informers.sets.Cluster().V1beta2()
	s.controllers = append(s.controllers, clustersets.NewController(s.clients.sets.ClusterV1beta2(), resolver,
		sets.ManagedClusterSets(), sets.ManagedClusterSetBindings(), s.informers.clusters.Cluster().V1().ManagedClusters()).Run)
}
