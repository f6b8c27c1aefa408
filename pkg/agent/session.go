package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/hub-apiserver/pkg/agent/executor"
	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/agent/namespaces"
	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
	"open-cluster-management.io/hub-apiserver/pkg/agent/serviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// session contains the controllers that run while the hub accepts the cluster.
type session struct {
	config *completedConfig
	// works is nil if ManifestWorks are disabled.
	works      *work.Controller
	accounts   *serviceaccount.Controller
	namespaces *namespaces.Controller
	// inventory is nil if the report of resources is disabled.
	inventory *inventory.Controller
	// restored keeps objects that a restored hub does not know.
	restored *restored.Guard
	// prepared is set once the managed cluster serves AppliedManifestWorks.
	prepared atomic.Bool
}

// newSession returns a session with a hub. It makes no request. The hash identifies the hub on
// the managed cluster. latest returns the last known own ManagedCluster, and may be nil.
func (c *completedConfig) newSession(hub *rest.Config, hash string, latest func() *clusterv1.ManagedCluster) (*session, error) {
	s := &session{config: c}
	hub = c.traced(hub)
	client, err := versioned.NewForConfig(hub)
	kube, kubeErr := kubernetes.NewForConfig(hub)
	if err := errors.Join(err, kubeErr); err != nil {
		return nil, fmt.Errorf("hub client: %w", err)
	}
	s.restored = restored.New(restored.Config{ClusterName: c.ClusterName, Clusters: client.ClusterV1().ManagedClusters(), Latest: latest})
	id := cmp.Or(c.AgentID, hash)
	if c.Works {
		s.works, err = work.New(work.Config{
			ClusterName: c.ClusterName, HubHash: hash, AgentID: id,
			Workers: c.Workers, WorkersPerTenant: c.WorkersPerTenant, PriorityWorkers: c.PriorityWorkers,
			EvictionGracePeriod: c.EvictionGracePeriod,
			Hub:                 client, Managed: c.managed, Metadata: c.metadata, Discovery: c.discovery,
			Executors:         executor.New(executor.Config{Managed: c.Managed, Own: c.dynamic, Authorization: c.managedKube.AuthorizationV1()}),
			FeedbackJSONPaths: c.FeedbackJSONPaths, Tracer: c.Tracer, Restored: s.restored,
		})
		if err != nil {
			return nil, err
		}
	}
	s.accounts, err = serviceaccount.New(serviceaccount.Config{
		ClusterName: c.ClusterName, Identity: serviceaccount.Identity(id, c.ClusterName), HubHost: hub.Host,
		Namespace: c.ServiceAccountNamespace, Workers: min(c.Workers, c.WorkersPerTenant), VerifyInterval: c.TokenVerifyInterval,
		Hub: client, HubSecrets: kube, Managed: c.managedKube, CA: c.ManagedCA, Clock: c.Clock, Restored: s.restored,
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
			Timing:      inventory.DefaultTiming,
			ClusterName: c.ClusterName, Settings: c.Inventory, Hub: hub,
			Metadata: c.metadata, Dynamic: c.dynamic, Discovery: c.discovery,
			Authorization: c.managedKube.AuthorizationV1(),
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// ready returns an error with the reason why the session is not ready, or nil. It also makes the log and the metric
// show stuck workers.
func (s *session) ready() error { return errors.Join(s.synced(), reconcile.Stuck()) }

func (s *session) synced() error {
	if s.works != nil && !s.prepared.Load() {
		return fmt.Errorf("waiting for the CRD of AppliedManifestWorks on the managed cluster")
	}
	if s.works != nil && !s.works.Synced() {
		return fmt.Errorf("waiting to list the ManifestWorks of the hub")
	}
	// A hub may not serve all resources.
	if s.config.ServiceAccounts && !s.accounts.Synced() && !s.accounts.Unserved() {
		return fmt.Errorf("waiting to list the ManagedServiceAccounts of the hub and the ServiceAccounts of the managed cluster")
	}
	if !s.namespaces.Synced() && !s.namespaces.Unserved() {
		return fmt.Errorf("waiting to list the ClusterNamespaces of the hub and the namespaces of the managed cluster")
	}
	if s.inventory != nil && !s.inventory.Synced() && !s.inventory.Unserved() {
		return fmt.Errorf("waiting to report the resources of the managed cluster to the hub")
	}
	return nil
}

// run runs all controllers until ctx ends or one fails, and returns when all have ended. It returns
// restored.ErrRestored if a new session is required.
func (s *session) run(ctx context.Context) error {
	if err := s.restored.Begin(ctx); err != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return s.restored.Run(ctx) })
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
	if s.config.ServiceAccounts {
		parts.Go(func() error { return s.accounts.Run(ctx) })
	}
	parts.Go(func() error { return s.namespaces.Run(ctx) })
	if s.inventory != nil {
		parts.Go(func() error { return s.inventory.Run(ctx) })
	}
	return parts.Wait()
}

// remove deletes all objects on the managed cluster that were applied for the hub. The session must
// not run at the same time.
func (s *session) remove(ctx context.Context) error {
	parts := errgroup.Group{}
	if s.works != nil {
		parts.Go(func() error { return s.works.RemoveAll(ctx) })
	}
	// Delete the accounts even if they are disabled now: they may have been enabled before.
	parts.Go(func() error { return s.accounts.RemoveAll(ctx) })
	return parts.Wait()
}
