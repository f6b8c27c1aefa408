package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

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
		Accounts: accounts, Clusters: clusters.Lister(), Membership: a.resolver.Feeds(),
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
