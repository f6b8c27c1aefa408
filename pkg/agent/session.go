package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent/access"
	"open-cluster-management.io/hub-apiserver/pkg/agent/executor"
	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/agent/namespaces"
	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// session is all that the agent does for its hub while the hub accepts the cluster.
type session struct {
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

// newSession returns a session with a hub. It makes no request. The hash is what the hub
// is called on the managed cluster.
func (c CompletedConfig) newSession(hub *rest.Config, hash string) (*session, error) {
	s := &session{config: c}
	hub = watched(hub)
	client, err := versioned.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("hub client: %w", err)
	}
	kube, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return nil, fmt.Errorf("hub client: %w", err)
	}
	id := c.agentID(hash)
	if !c.NoWorks {
		executors, err := c.newExecutors()
		if err != nil {
			return nil, err
		}
		s.works, err = work.New(work.Config{
			ClusterName: c.ClusterName, HubHash: hash, AgentID: id,
			Workers: c.Workers, WorkersPerTenant: c.WorkersPerTenant, PriorityWorkers: c.PriorityWorkers,
			EvictionGracePeriod: c.EvictionGracePeriod,
			Hub:                 client, Managed: c.managed, Metadata: c.metadata, Discovery: c.discovery,
			Executors: executors, FeedbackJSONPaths: c.FeedbackJSONPaths,
		})
		if err != nil {
			return nil, err
		}
	}
	s.accounts, err = serviceaccount.New(serviceaccount.Config{
		ClusterName: c.ClusterName, Identity: serviceaccount.Identity(id, c.ClusterName), HubHost: hub.Host,
		Namespace: c.ServiceAccountNamespace, Workers: min(c.Workers, c.WorkersPerTenant), VerifyInterval: c.TokenVerifyInterval,
		Hub: client, HubSecrets: kube, Managed: c.managedKube, CA: c.ManagedCA, Clock: c.Clock,
	})
	if err != nil {
		return nil, err
	}
	s.namespaces, err = namespaces.New(namespaces.Config{ClusterName: c.ClusterName, Hub: client, Managed: c.metadata})
	if err != nil {
		return nil, err
	}
	if c.Inventory != nil {
		s.inventory, err = inventory.New(inventory.Config{
			ClusterName: c.ClusterName, APIEndpoint: c.ManagedEndpoint, Settings: c.Inventory, Hub: hub,
			Metadata: c.metadata, Dynamic: c.dynamic, Discovery: c.discovery,
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newExecutors returns what decides with whose permissions works act.
func (c CompletedConfig) newExecutors() (*executor.Executors, error) {
	executors, err := executor.New(executor.Config{
		Managed: c.Managed, Own: c.dynamic, Mode: c.ExecutorMode,
		Reviewer: access.NewReviewer(access.Config{
			Client: c.managedKube.AuthorizationV1(), RBAC: c.managedKube.RbacV1(), Clock: c.Clock,
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("executors of works: %w", err)
	}
	return executors, nil
}

// agentID is the identity of the agent, which is the hub's unless it was given another.
func (c CompletedConfig) agentID(hash string) string {
	if c.AgentID == "" {
		return hash
	}
	return c.AgentID
}

// stuck returns an error that names the objects from which workers do not return; nil
// if there are none.
func (s *session) stuck() error {
	errs := []error{s.accounts.Stuck(), s.namespaces.Stuck()}
	if s.works != nil {
		errs = append(errs, s.works.Stuck())
	}
	return errors.Join(errs...)
}

// ready returns what is not known yet, or what is stuck; nil if the session does its
// work.
func (s *session) ready() error {
	if s.works != nil && !s.prepared.Load() {
		return fmt.Errorf("the CRD of AppliedManifestWorks is not established on the managed cluster yet")
	}
	if s.works != nil && !s.works.Synced() {
		return fmt.Errorf("the ManifestWorks of the hub are not known yet")
	}
	// A hub without ManagedServiceAccounts for this agent has all that it asks for.
	if !s.config.NoServiceAccounts && !s.accounts.Synced() && !s.accounts.Unserved() {
		return fmt.Errorf("the ManagedServiceAccounts of the hub or the ServiceAccounts of the managed cluster are not known yet")
	}
	if !s.namespaces.Synced() && !s.namespaces.Unserved() {
		return fmt.Errorf("the ClusterNamespaces of the hub or the namespaces of the managed cluster are not known yet")
	}
	if s.inventory != nil && !s.inventory.Synced() && !s.inventory.Unserved() {
		return fmt.Errorf("the resources of the managed cluster are not reported to the hub yet")
	}
	return s.stuck()
}

// run works until ctx ends or a part fails, and returns when all parts have ended.
func (s *session) run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	if s.works != nil {
		parts.Go(func() error {
			if err := ensureCRD(ctx, s.config.dynamic); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			s.prepared.Store(true)
			return s.works.Run(ctx)
		})
	}
	if !s.config.NoServiceAccounts {
		parts.Go(func() error { return s.accounts.Run(ctx) })
	}
	parts.Go(func() error { return s.namespaces.Run(ctx) })
	if s.inventory != nil {
		parts.Go(func() error { return s.inventory.Run(ctx) })
	}
	return parts.Wait()
}

// remove removes from the managed cluster what was done for the hub. The session must not
// run meanwhile.
func (s *session) remove(ctx context.Context) error {
	parts := errgroup.Group{}
	if s.works != nil {
		parts.Go(func() error { return s.works.RemoveAll(ctx) })
	}
	// Also where they are switched off now, and were not before.
	parts.Go(func() error { return s.accounts.RemoveAll(ctx) })
	return parts.Wait()
}
