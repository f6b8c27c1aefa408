package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedclusterset"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedserviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// addAccounts adds the controllers of ManagedServiceAccounts. A hub that stores them in
// CustomResourceDefinitions has its own controllers.
func (a *assembly) addAccounts() error {
	hub, err := metadata.NewForConfig(a.hub)
	if err != nil {
		return fmt.Errorf("building the client of the hub: %w", err)
	}
	s := a.server
	secrets, informers, err := managedserviceaccount.NewSecrets(hub, reconcile.DropManagedFields)
	if err != nil {
		return err
	}
	s.secretInformers = informers

	client := s.clients.own.AuthenticationV1beta1()
	accounts := s.informers.own.Authentication().V1beta1().ManagedServiceAccounts()
	clusters := s.informers.clusters.Cluster().V1().ManagedClusters()
	replicator, err := managedserviceaccount.NewReplicaController(client, a.resolver, managedserviceaccount.ReplicaInformers{
		Accounts: accounts, Clusters: clusters.Lister(), Membership: s.membership(a.resolver),
	})
	if err != nil {
		return err
	}
	access := managedserviceaccount.NewAgentRoleController(s.hub, managedserviceaccount.AgentRoleInformers{
		Accounts: accounts, Clusters: clusters, Secrets: secrets,
		Roles: s.hubInformers.Rbac().V1().Roles(), Bindings: s.hubInformers.Rbac().V1().RoleBindings(),
		Groups: a.registering.groups, Registrations: a.registering.registrations,
	})
	s.controllers = append(s.controllers,
		replicator.Run,
		access.Run,
		managedserviceaccount.NewUpkeepController(client, accounts, secrets).Run,
		managedserviceaccount.NewTTLController(client, accounts).Run)
	return nil
}

// membership returns the feeds that may change the clusters of namespaces.
func (s *Server) membership(resolver *managedclusterset.Resolver) []reconcile.Feed {
	namespaces := func(names []string) []cache.ObjectName {
		keys := make([]cache.ObjectName, 0, len(names))
		for _, name := range names {
			keys = append(keys, cache.NewObjectName(name, ""))
		}
		return keys
	}
	return []reconcile.Feed{
		{
			Informer: s.informers.clusters.Cluster().V1().ManagedClusters().Informer(),
			Keys: reconcile.Keys(func(cluster *clusterv1.ManagedCluster) []cache.ObjectName {
				// The change also affects the namespace of the cluster.
				return append(namespaces(resolver.Namespaces(cluster)), cache.NewObjectName(cluster.Name, ""))
			}),
			Ignore: reconcile.Same(managedclusterset.SameLabels),
		},
		{
			Informer: s.informers.sets.Cluster().V1beta2().ManagedClusterSets().Informer(),
			Keys: reconcile.Keys(func(set *clusterv1beta2.ManagedClusterSet) []cache.ObjectName {
				return namespaces(resolver.NamespacesOf(set.Name))
			}),
			Ignore: reconcile.Same(func(a, b *clusterv1beta2.ManagedClusterSet) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) }),
		},
		{
			Informer: s.informers.sets.Cluster().V1beta2().ManagedClusterSetBindings().Informer(),
			Keys: reconcile.Keys(func(binding metav1.Object) []cache.ObjectName {
				return []cache.ObjectName{cache.NewObjectName(binding.GetNamespace(), "")}
			}),
		},
	}
}

// servedPeriod is the interval of checks whether the hub serves a resource.
const servedPeriod = 10 * time.Second

// whenServed returns a function that calls run when the hub serves an optional resource, because an informer that starts
// earlier fails.
func (s *Server) whenServed(resource schema.GroupVersionResource, run func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		err := wait.PollUntilContextCancel(ctx, servedPeriod, true, func(context.Context) (bool, error) {
			served, err := discovery.IsResourceEnabled(s.hub.Discovery(), resource)
			return served && err == nil, nil
		})
		if err == nil {
			run(ctx)
		}
	}
}
