package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const campaignPause = time.Second

// Server is the API server, ready to run.
type Server struct {
	generic   *genericapiserver.GenericAPIServer
	hub       kubernetes.Interface
	extra     *ExtraConfig
	clients   *clients
	informers informerFactories
	// hubInformers are of the hub's own resources that are labelled with the name
	// of a cluster, secretInformers of the metadata of its accounts' Secrets.
	hubInformers    informers.SharedInformerFactory
	secretInformers metadatainformer.SharedInformerFactory
	// hubRoles are informers of all roles of the hub, addons those of the public agent for accounts.
	hubRoles informers.SharedInformerFactory
	addons   *accountAddons
	// counters count what namespaces hold, for their quotas.
	counters []*quota.Counter
	// search is nil for a server without.
	search *fleetSearch
	// hubCheck finds out what the hub lacks for registration; nil without.
	hubCheck func(context.Context)
	// controllers run on the leader, each until its context ends.
	controllers []func(context.Context)

	// running counts the goroutines of the server's own; Run waits for them.
	running sync.WaitGroup
	// term is held while the controllers run.
	term sync.Mutex
}

func (s *Server) addHooks() error {
	leases := []string{s.extra.Namespace, s.extra.LeaderElection.ResourceNamespace}
	access := newHubAccess(s.hub, leases, hubKeeps{
		works:    s.clients.works != s.clients.own,
		clusters: s.clients.clusters != s.clients.own,
		sets:     s.clients.sets != s.clients.own,
		accounts: s.secretInformers == nil,
		addons:   s.clients.addons != s.clients.own,
	}, s.search != nil, s.extra.executorNames())
	if err := s.generic.AddReadyzChecks(healthz.NamedCheck("hub-permissions", access.check)); err != nil {
		return err
	}
	err := s.generic.AddReadyzChecks(
		healthz.NamedCheck("stuck-workers", func(*http.Request) error { return reconcile.Stuck() }),
		healthz.NamedCheck("quotas", func(*http.Request) error {
			if slices.ContainsFunc(s.counters, func(c *quota.Counter) bool { return !c.Synced() }) {
				return errors.New("what the namespaces hold is not known yet")
			}
			return nil
		}))
	if err != nil {
		return err
	}
	hooks := map[string]func(context.Context){
		"hub-permissions": access.run,
		"own-informers":   s.runInformers,
		"hub-controllers": s.campaign,
		"account-addons":  s.addons.run,
		"quotas":          s.count,
	}
	if s.clients.accounts != s.clients.own {
		hooks["account-informers"] = s.runAccountInformers
	}
	if s.hubCheck != nil {
		hooks["registration-hub-check"] = s.hubCheck
	}
	if s.search != nil {
		of, err := s.search.addHooks(s, access)
		if err != nil {
			return err
		}
		maps.Copy(hooks, of)
	}
	if s.extra.Embedded != nil {
		hooks["embedded-etcd-maintenance"] = s.extra.Embedded.Maintain
	}
	for name, run := range hooks {
		err := s.generic.AddPostStartHook(name, func(hook genericapiserver.PostStartHookContext) error {
			s.running.Go(func() { run(hook) })
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Run serves until ctx ends, then lets what is under way finish. It returns once
// everything it started has stopped.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer s.closeSearch()
	defer s.running.Wait()
	defer cancel(nil)

	var claims []*storageClaim
	if s.search != nil && s.search.claim != nil {
		claims = append(claims, s.search.claim)
	}
	if s.extra.Embedded != nil {
		claims = append(claims, newStorageClaim(s.hub, s.extra.Namespace, etcdClaim, s.extra.Embedded.StorageID()))
	}
	for _, claim := range claims {
		if err := claim.take(ctx); err != nil {
			return err
		}
		s.running.Go(func() {
			if err := claim.keep(ctx); err != nil {
				cancel(err)
			}
		})
	}
	if s.extra.Embedded != nil {
		failed := s.extra.Embedded.Failed()
		s.running.Go(func() {
			select {
			case err := <-failed:
				cancel(fmt.Errorf("embedded etcd: %w", err))
			case <-ctx.Done():
			}
		})
	}
	if err := s.generic.PrepareRun().RunWithContext(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// closeSearch makes what the engine has taken durable, after everything that uses it has ended.
func (s *Server) closeSearch() {
	if s.search == nil {
		return
	}
	if err := s.search.engine.Close(); err != nil {
		klog.Background().Error(err, "closing the search engine")
	}
}

func (s *Server) runInformers(ctx context.Context) {
	type factory interface {
		Start(<-chan struct{})
		Shutdown()
	}
	factories := []factory{s.informers.own, s.informers.works, s.informers.clusters, s.informers.sets, s.hubInformers, s.hubRoles}
	if s.secretInformers != nil {
		factories = append(factories, s.secretInformers)
	}
	for _, factory := range factories {
		factory.Start(ctx.Done())
		defer factory.Shutdown()
	}
	<-ctx.Done()
}

// campaign runs the controllers whenever this replica leads, until ctx ends.
func (s *Server) campaign(ctx context.Context) {
	if !s.extra.LeaderElection.LeaderElect {
		s.runControllers(ctx)
		return
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.lead(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "leader election")
		}
	}, campaignPause)
}

func (s *Server) runControllers(ctx context.Context) {
	var running sync.WaitGroup
	for _, run := range s.controllers {
		running.Go(func() { run(ctx) })
	}
	running.Wait()
}

func (s *Server) lead(ctx context.Context) error {
	config := s.extra.LeaderElection
	lock, err := resourcelock.New(config.ResourceLock, config.ResourceNamespace, config.ResourceName,
		s.hub.CoreV1(), s.hub.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: s.extra.Identity})
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   config.LeaseDuration.Duration,
		RenewDeadline:   config.RenewDeadline.Duration,
		RetryPeriod:     config.RetryPeriod.Duration,
		ReleaseOnCancel: true,
		Name:            config.ResourceName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				s.term.Lock()
				defer s.term.Unlock()
				s.runControllers(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("elector: %w", err)
	}
	elector.Run(ctx)
	// The elector does not wait for what it started, and Run must.
	s.term.Lock()
	defer s.term.Unlock()
	return nil
}
