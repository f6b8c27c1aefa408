package apiserver

import (
	"open-cluster-management.io/hub-apiserver/pkg/clustersets"
)

// newResolver resolves cluster sets wherever the hub keeps them.
func newResolver(informers informerFactories) (*clustersets.Resolver, error) {
	sets := informers.sets.Cluster().V1beta2()
	return clustersets.NewResolver(sets.ManagedClusterSets(), sets.ManagedClusterSetBindings(), informers.clusters.Cluster().V1().ManagedClusters())
}

// addClusterSets looks after cluster sets where this server keeps them, and after what they require on
// clusters where it keeps these.
func (s *Server) addClusterSets(resolver *clustersets.Resolver) {
	sets := s.informers.sets.Cluster().V1beta2()
	if s.clients.clusters == s.clients.own {
		s.controllers = append(s.controllers, clustersets.NewNamespaceController(s.clients.clusters.ClusterV1(), resolver,
			sets.ManagedClusterSets(), s.informers.clusters.Cluster().V1().ManagedClusters()).Run)
	}
	if s.clients.sets != s.clients.own {
		return
	}
	s.controllers = append(s.controllers, clustersets.NewController(s.clients.sets.ClusterV1beta2(), resolver,
		sets.ManagedClusterSets(), sets.ManagedClusterSetBindings(), s.informers.clusters.Cluster().V1().ManagedClusters()).Run)
}
