package apiserver

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"open-cluster-management.io/hub-apiserver/pkg/accountsync"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/clustersets"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// addAccounts looks after the ManagedServiceAccounts that this server serves. On
// a hub that keeps them in its own CustomResourceDefinitions it has its own
// agents for them.
func (s *Server) addAccounts(hub metadata.Interface, resolver *clustersets.Resolver, registering *clusterRegistration) error {
	secrets, informers, err := accountsync.NewSecrets(hub, withoutManagedFields)
	if err != nil {
		return err
	}
	s.secretInformers = informers

	client := s.clients.own.AuthenticationV1beta1()
	accounts := s.informers.own.Authentication().V1beta1().ManagedServiceAccounts()
	clusters := s.informers.clusters.Cluster().V1().ManagedClusters()
	replicator, err := accountsync.NewReplicator(client, resolver, accountsync.ReplicatorInformers{
		Accounts: accounts, Clusters: clusters.Lister(), Membership: s.membership(resolver),
	})
	if err != nil {
		return err
	}
	access := accountsync.NewAccess(s.hub, accountsync.AccessInformers{
		Accounts: accounts, Clusters: clusters, Secrets: secrets,
		Roles: s.hubInformers.Rbac().V1().Roles(), Bindings: s.hubInformers.Rbac().V1().RoleBindings(),
		Groups: registering.groups, Registrations: registering.registrations,
	})
	s.controllers = append(s.controllers,
		replicator.Run,
		access.Run,
		accountsync.NewObserver(client, accounts, secrets).Run,
		accountsync.NewCollector(client, accounts, secrets).Run,
		accountsync.NewTTL(client, accounts).Run,
		accountsync.NewTokenExpirer(client, accounts).Run)
	return nil
}

// membership is what may change the clusters of namespaces.
func (s *Server) membership(resolver *clustersets.Resolver) []reconcile.Feed {
	namespaces := func(names []string, err error) []cache.ObjectName {
		if err != nil {
			return nil // only an index that does not exist fails
		}
		keys := make([]cache.ObjectName, 0, len(names))
		for _, name := range names {
			keys = append(keys, cache.NewObjectName(name, ""))
		}
		return keys
	}
	return []reconcile.Feed{
		{
			Informer: s.informers.clusters.Cluster().V1().ManagedClusters().Informer(),
			Keys: func(obj any) []cache.ObjectName {
				cluster, ok := obj.(*clusterv1.ManagedCluster)
				if !ok {
					return nil
				}
				// A namespace of that name is, or no longer is, that of a cluster.
				return append(namespaces(resolver.Namespaces(cluster)), cache.NewObjectName(cluster.Name, ""))
			},
			Ignore: clustersets.SameLabels,
		},
		{
			Informer: s.informers.sets.Cluster().V1beta2().ManagedClusterSets().Informer(),
			Keys: func(obj any) []cache.ObjectName {
				set, ok := obj.(*clusterv1beta2.ManagedClusterSet)
				if !ok {
					return nil
				}
				return namespaces(resolver.NamespacesOf(set.Name))
			},
			Ignore: func(before, after any) bool {
				a, ok := before.(*clusterv1beta2.ManagedClusterSet)
				b, also := after.(*clusterv1beta2.ManagedClusterSet)
				return ok && also && equality.Semantic.DeepEqual(a.Spec, b.Spec)
			},
		},
		{
			Informer: s.informers.sets.Cluster().V1beta2().ManagedClusterSetBindings().Informer(),
			Keys: func(obj any) []cache.ObjectName {
				binding, ok := obj.(metav1.Object)
				if !ok {
					return nil
				}
				return []cache.ObjectName{cache.NewObjectName(binding.GetNamespace(), "")}
			},
		},
	}
}
