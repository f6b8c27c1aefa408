package apiserver

import (
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedclusterset"
)

// newResolver builds the Resolver of cluster sets.
func newResolver(informers informerFactories) (*managedclusterset.Resolver, error) {
	sets := informers.sets.Cluster().V1beta2()
	return managedclusterset.NewResolver(sets.ManagedClusterSets(), sets.ManagedClusterSetBindings(), informers.clusters.Cluster().V1().ManagedClusters())
}

// addClusterSets adds the controllers of the cluster sets and of the managed namespaces that this server
// stores.
func (s *Server) addClusterSets(resolver *managedclusterset.Resolver) {
	sets := s.informers.sets.Cluster().V1beta2()
	if s.clients.clusters == s.clients.own {
		s.controllers = append(s.controllers, managedclusterset.NewNamespaceController(s.clients.clusters.ClusterV1(), resolver,
			sets.ManagedClusterSets(), s.informers.clusters.Cluster().V1().ManagedClusters()).Run)
	}
	if s.clients.sets != s.clients.own {
		return
	}
	s.controllers = append(s.controllers, managedclusterset.NewController(s.clients.sets.ClusterV1beta2(), resolver,
		sets.ManagedClusterSets(), sets.ManagedClusterSetBindings(), s.informers.clusters.Cluster().V1().ManagedClusters()).Run)
}
