package agent

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/agent/namespaces"
	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
)

// Agent connects one managed cluster to its hub.
type Agent struct {
	config CompletedConfig
	// works is nil if it is switched off.
	works      *work.Controller
	accounts   *serviceaccount.Controller
	namespaces *namespaces.Controller
	// inventory is nil if it is switched off.
	inventory *inventory.Controller
	// prepared is whether the managed cluster serves AppliedManifestWorks.
	prepared atomic.Bool
}

// New returns an agent. It makes no request.
func (c CompletedConfig) New() (*Agent, error) {
	a := &Agent{config: c}
	var err error
	if !c.NoWorks {
		a.works, err = work.New(work.Config{
			ClusterName: c.ClusterName, HubHash: c.hubHash, AgentID: c.AgentID, Workers: c.Workers,
			EvictionGracePeriod: c.EvictionGracePeriod,
			Hub:                 c.hub, Managed: c.managed, Metadata: c.metadata, Discovery: c.discovery,
			Executors: work.AgentOnly{Client: c.dynamic},
		})
		if err != nil {
			return nil, err
		}
	}
	a.accounts, err = serviceaccount.New(serviceaccount.Config{
		ClusterName: c.ClusterName, Identity: serviceaccount.Identity(c.AgentID, c.ClusterName), HubHost: c.Hub.Host,
		Namespace: c.ServiceAccountNamespace, Workers: c.Workers, VerifyInterval: c.TokenVerifyInterval,
		Hub: c.hub, HubSecrets: c.hubKube, Managed: c.managedKube, CA: c.ManagedCA, Clock: c.Clock,
	})
	if err != nil {
		return nil, err
	}
	a.namespaces, err = namespaces.New(namespaces.Config{ClusterName: c.ClusterName, Hub: c.hub, Managed: c.metadata})
	if err != nil {
		return nil, err
	}
	if c.Inventory != nil {
		a.inventory, err = inventory.New(inventory.Config{
			ClusterName: c.ClusterName, APIEndpoint: c.ManagedEndpoint, Settings: c.Inventory, Hub: c.Hub,
			Metadata: c.metadata, Dynamic: c.dynamic, Discovery: c.discovery,
		})
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Ready reports whether the agent does its work.
func (a *Agent) Ready() error {
	if a.works != nil && !a.prepared.Load() {
		return fmt.Errorf("the CRD of AppliedManifestWorks is not established on the managed cluster yet")
	}
	if a.works != nil && !a.works.Synced() {
		return fmt.Errorf("the ManifestWorks of the hub are not known yet")
	}
	// A hub without ManagedServiceAccounts for this agent has all that it asks for.
	if !a.accounts.Synced() && !a.accounts.Unserved() {
		return fmt.Errorf("the ManagedServiceAccounts of the hub or the ServiceAccounts of the managed cluster are not known yet")
	}
	if !a.namespaces.Synced() && !a.namespaces.Unserved() {
		return fmt.Errorf("the ClusterNamespaces of the hub or the namespaces of the managed cluster are not known yet")
	}
	if a.inventory != nil && !a.inventory.Synced() && !a.inventory.Unserved() {
		return fmt.Errorf("the resources of the managed cluster are not reported to the hub yet")
	}
	return nil
}

// Run works until ctx ends or a part fails, and returns when all parts have ended.
func (a *Agent) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return a.serveHealth(ctx) })
	if a.works != nil {
		parts.Go(func() error {
			if err := ensureCRD(ctx, a.config.dynamic); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			a.prepared.Store(true)
			return a.works.Run(ctx)
		})
	}
	parts.Go(func() error { return a.accounts.Run(ctx) })
	parts.Go(func() error { return a.namespaces.Run(ctx) })
	if a.inventory != nil {
		parts.Go(func() error { return a.inventory.Run(ctx) })
	}
	return parts.Wait()
}
