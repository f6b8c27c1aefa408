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
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/permissions"
	"open-cluster-management.io/hub-apiserver/pkg/quota"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
)

const campaignPause = time.Second

type Server struct {
	*Data
	generic   *genericapiserver.GenericAPIServer
	informers informerFactories
	// hubInformers are the informers of hub resources with the cluster label. secretInformers
	// are the informers of the metadata of the Secrets of accounts.
	hubInformers    informers.SharedInformerFactory
	secretInformers metadatainformer.SharedInformerFactory
	// hubRoles are the informers of all roles of the hub. addons are the add-ons of upstream agents for
	// accounts.
	hubRoles informers.SharedInformerFactory
	addons   *permissions.AccountAddons
	counters []*quota.Counter
	// counting are the functions that count the stored objects.
	counting []func(context.Context)
	search   *fleetSearch
	// hooks run from the start, each until its context ends, and checks are checks of readiness. The keys are their names.
	hooks  map[string]func(context.Context)
	checks map[string]func(*http.Request) error
	// watches are the watches of stored objects, which end when a migration from or to OCM begins.
	watches *definition.Watches
	// events receives the Events of this replica.
	events events.EventBroadcaster
	// controllers run on the leader, each until its context ends.
	controllers []func(context.Context)

	// drained is closed when a server with an embedded etcd has answered its last request.
	drained chan struct{}
	// running counts the goroutines for which Run waits.
	running sync.WaitGroup
	// term is held while the controllers run.
	term sync.Mutex
}

func (s *Server) addHooks() error {
	access := s.hubAccess()
	s.checks["hub-permissions"] = access.ready
	s.checks["stuck-workers"] = func(*http.Request) error { return reconcile.Stuck() }
	s.checks["quotas"] = func(*http.Request) error {
		if slices.ContainsFunc(s.counters, func(c *quota.Counter) bool { return !c.Synced() }) {
			return errors.New("the quotas of namespaces are not counted yet")
		}
		return nil
	}
	maps.Copy(s.hooks, map[string]func(context.Context){
		"hub-permissions": access.run,
		"own-informers": func(ctx context.Context) {
			runInformers(ctx, s.informers.own, s.informers.works, s.informers.clusters, s.informers.sets, s.hubInformers, s.hubRoles, s.secretInformers)
		},
		"hub-controllers": s.campaign,
		"quotas":          func(ctx context.Context) { runAll(ctx, s.counting) },
		"events":          s.recordEvents,
	})
	if s.clients.accounts != s.clients.own {
		// ClusterPermissions without accounts do not depend on them.
		s.hooks["account-informers"] = s.whenServed(authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts"),
			func(ctx context.Context) { runInformers(ctx, s.informers.accounts) })
	}
	if s.search != nil {
		s.search.addHooks(s, access)
	}
	if s.extra.Embedded != nil {
		s.hooks["embedded-etcd-maintenance"] = func(ctx context.Context) {
			s.extra.Embedded.Maintain(ctx)
			close(s.drained)
		}
		s.hooks["embedded-etcd-snapshots"] = s.extra.Embedded.SaveSnapshots
	}
	for _, name := range slices.Sorted(maps.Keys(s.checks)) {
		if err := s.generic.AddReadyzChecks(healthz.NamedCheck(name, s.checks[name])); err != nil {
			return err
		}
	}
	for name, run := range s.hooks {
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

// Run serves until ctx ends, then waits for running requests. It returns after all users of the data have stopped. With an
// embedded etcd, it does not wait until clients close their connections, which takes one to two seconds: no other server
// serves meanwhile, and its replacement waits for the data.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer s.close()
	defer s.running.Wait()
	defer cancel(nil)

	// needed stops the server with the error of a function.
	needed := func(run func(context.Context) error) {
		s.running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	if s.claim != nil {
		needed(s.claim.keep)
	}
	for _, cluster := range s.etcd {
		needed(cluster.AwaitVersions)
		if s.extra.EtcdFailover != nil {
			// Without etcd, watches would look as if nothing changed, although other replicas may reach it.
			s.running.Go(func() { s.extra.EtcdFailover.Run(ctx, cluster, s.watches.End) })
		}
	}
	if s.extra.Embedded != nil {
		needed(failure("embedded etcd", s.extra.Embedded.Failed()))
	}
	if s.search != nil {
		needed(failure("search engine", s.search.engine.Failed()))
	}
	served := make(chan error, 1)
	go func() { served <- s.generic.PrepareRun().RunWithContext(ctx) }()
	drained := s.drained
	if s.generic.AuditBackend != nil || !s.generic.ShutdownSendRetryAfter {
		// The library writes the last audit events afterwards, or ends the hooks before it has answered the last request.
		drained = nil
	}
	select {
	case err := <-served:
		if err != nil {
			return err
		}
	case <-drained:
		s.generic.Destroy()
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// failure returns a function that waits for the error of a part of the server.
func failure(part string, failed <-chan error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case err := <-failed:
			return fmt.Errorf("%s: %w", part, err)
		case <-ctx.Done():
			return nil
		}
	}
}

// close closes the connections to etcd and the search engine after their users have stopped, so that the data of search are
// durable.
func (s *Server) close() {
	if err := closeEtcd(s.etcd); err != nil && !errors.Is(err, context.Canceled) {
		klog.Background().Error(err, "Failed to close the connections to etcd")
	}
	if s.search == nil {
		return
	}
	if err := s.search.engine.Close(); err != nil {
		klog.Background().Error(err, "Failed to close the search engine")
	}
}

type informerFactory interface {
	Start(<-chan struct{})
	Shutdown()
}

// runInformers runs the informers of factories until ctx ends. Factories may be nil.
func runInformers(ctx context.Context, factories ...informerFactory) {
	for _, factory := range factories {
		if factory != nil {
			factory.Start(ctx.Done())
			defer factory.Shutdown()
		}
	}
	<-ctx.Done()
}

// campaign runs the controllers while this replica is the leader, until ctx ends.
func (s *Server) campaign(ctx context.Context) {
	if !s.extra.LeaderElection.LeaderElect {
		runAll(ctx, s.controllers)
		return
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := s.lead(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Leader election failed")
		}
	}, campaignPause)
}

// runAll runs functions until ctx ends.
func runAll(ctx context.Context, runs []func(context.Context)) {
	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() { run(ctx) })
	}
	running.Wait()
}

func (s *Server) lead(ctx context.Context) error {
	config := s.extra.LeaderElection
	lock, err := resourcelock.New(config.ResourceLock, config.ResourceNamespace, config.ResourceName,
		s.hub.CoreV1(), s.hub.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: s.extra.Identity})
	if err != nil {
		return fmt.Errorf("building the lock of leader election: %w", err)
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: config.ResourceName, Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: config.LeaseDuration.Duration, RenewDeadline: config.RenewDeadline.Duration, RetryPeriod: config.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				s.term.Lock()
				defer s.term.Unlock()
				runAll(ctx, s.controllers)
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { s.watches.Hold(identity == migrationv1alpha1.User) },
		},
	})
	if err != nil {
		return fmt.Errorf("building the elector: %w", err)
	}
	elector.Run(ctx)
	// Run must wait for the controllers, and the elector does not.
	s.term.Lock()
	defer s.term.Unlock()
	return nil
}
