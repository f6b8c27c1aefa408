// Package apiserver assembles the API server: a Config is completed, builds a Server, and the Server
// runs. resources.go contains the table of all served resources.
package apiserver

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/utils/clock"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/console"
	permissioncontroller "open-cluster-management.io/hub-apiserver/pkg/controllers/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedserviceaccount"
	workcontroller "open-cluster-management.io/hub-apiserver/pkg/controllers/manifestwork"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/transition"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/generated/openapi"
	"open-cluster-management.io/hub-apiserver/pkg/keepalive"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/multiclusterroleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/registry/work/manifestwork"
	"open-cluster-management.io/hub-apiserver/pkg/servingcert"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

const serverName = "hub-apiserver"

// hubQPS and hubBurst limit the server's own requests to the hub, per second.
const (
	hubQPS   = 200
	hubBurst = 400
)

// ExtraConfig is the configuration of this server in addition to the generic API server
// configuration.
type ExtraConfig struct {
	// Identity is the unique name of this replica.
	Identity string
	// Namespace is the namespace of the hub that contains the Leases of the server, and the Secrets of
	// its serving certificate.
	Namespace string
	// ManifestLimitBytes limits the manifests of one ManifestWork.
	ManifestLimitBytes int64
	// EscalationCheck is the action for a ClusterPermission that grants more than its author may grant.
	EscalationCheck clusterpermission.EscalationCheck
	// NamespaceSource determines which namespaces the namespaceSelectors of ClusterPermissions match.
	NamespaceSource NamespaceSource
	// RequireManagedCluster refuses new objects that would wait for a cluster to join.
	RequireManagedCluster bool
	// WorkExecutor is the executor of the ManifestWorks of ClusterPermissions. If it is nil, the agent
	// applies them as itself.
	WorkExecutor *types.NamespacedName
	// NilExecutor is the action for a ManifestWork without an executor.
	NilExecutor executor.NilExecutor
	// MaximumTokenValidity limits the validity of tokens of ManagedServiceAccounts. 0 means no limit.
	MaximumTokenValidity time.Duration
	// ReservedAccountNames are names that no new ManagedServiceAccount may have.
	ReservedAccountNames []string
	// LeaderElection elects the replica that runs the controllers.
	LeaderElection componentbaseconfig.LeaderElectionConfiguration
	// Embedded is the etcd in this process, or nil if the server uses another etcd.
	Embedded *etcd.Server
	// EtcdFailover makes the stores use the other members if one does not respond. It is nil for a single member.
	EtcdFailover *etcd.Failover
	// Search is nil for a server without fleet search.
	Search *SearchConfig
	// Quotas limit the objects of namespaces and the size of objects.
	Quotas Quotas
	// Registration applies if this server serves ManagedClusters.
	Registration *RegistrationConfig
	// Requests are the limits of each caller.
	Requests RequestLimits
	// Reviewer decides like the authorizer of the generic configuration, with another client of the hub. It is for
	// requests that need many decisions, so that these delay no other requests.
	Reviewer authorizer.Authorizer
	// ServingCertificate is the policy of the serving certificate in a Secret of the hub. It is nil if
	// the server uses files or a self-signed certificate.
	ServingCertificate *servingcert.Policy
}

// Config is the configuration of a server.
type Config struct {
	Generic *genericapiserver.RecommendedConfig
	Extra   ExtraConfig
}

// CompletedConfig can only be created by Config.Complete.
type CompletedConfig struct {
	*completedConfig
}

type completedConfig struct {
	generic genericapiserver.CompletedConfig
	hub     *rest.Config
	extra   *ExtraConfig
}

// DescribeAPI sets the OpenAPI configuration of a server.
func DescribeAPI(generic *genericapiserver.RecommendedConfig) {
	namer := openapinamer.NewDefinitionNamer(scheme.Scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIConfig.Info.Title = serverName
	generic.OpenAPIV3Config.Info.Title = serverName
	generic.OpenAPIConfig.Info.Version = version.Short()
	generic.OpenAPIV3Config.Info.Version = version.Short()
}

// Complete derives the remaining configuration.
func (c *Config) Complete() CompletedConfig {
	hub := rest.CopyConfig(c.Generic.ClientConfig)
	hub.QPS, hub.Burst = hubQPS, hubBurst
	hub.Wrap(keepalive.Repeat)
	return CompletedConfig{&completedConfig{generic: c.Generic.Complete(), hub: hub, extra: &c.Extra}}
}

// New builds the server. Nothing runs before Server.Run.
func (c CompletedConfig) New() (_ *Server, err error) {
	hub, err := kubernetes.NewForConfig(c.hub)
	if err != nil {
		return nil, fmt.Errorf("building the client of the hub: %w", err)
	}
	if serving := c.generic.SecureServing; serving != nil && serving.ClientCA != nil {
		serving.ClientCA = &loadedCA{CAContentProvider: serving.ClientCA, hub: hub}
	}
	if authentication := &c.generic.Authentication; authentication.RequestHeaderConfig != nil {
		authentication.Authenticator = newFrontProxy(authentication.RequestHeaderConfig, hub, authentication.Authenticator, clock.RealClock{})
		c.generic.Authorization.Authorizer = authorizedByHub(c.generic.Authorization.Authorizer)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: hub.EventsV1()})
	recorder := broadcaster.NewRecorder(scheme.Scheme, serverName)
	certificate, err := c.servingCertificate(hub, broadcaster)
	if err != nil {
		return nil, err
	}
	clients, err := c.clients()
	if err != nil {
		return nil, err
	}

	informers := clients.informers()
	resolver, err := newResolver(informers)
	if err != nil {
		return nil, err
	}
	addons, err := newAccountAddons(clients, hub.Discovery())
	if err != nil {
		return nil, err
	}
	hubRoles := kubeinformers.NewSharedInformerFactoryWithOptions(hub, 0, kubeinformers.WithTransform(onlyRules))
	presence := c.presence(clients, informers)
	deliverer := c.deliverer(clients, informers, hub, hubRoles.Rbac().V1(), addons, presence)
	labelled := kubeinformers.NewSharedInformerFactoryWithOptions(hub, 0, kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.LabelSelector = clusterv1.ClusterNameLabel
	}), kubeinformers.WithTransform(func(obj any) (any, error) { return withoutManagedFields(csr.Small(obj)) }))
	registering := &clusterRegistration{}
	if clients.clusters == clients.own {
		if registering, err = c.newRegistration(clients, informers, hub, labelled, recorder); err != nil {
			return nil, err
		}
	} else {
		c.generic.MergedResourceConfig.DisableVersions(registerv1alpha1.SchemeGroupVersion)
	}
	reviews := callers.NewReviews()
	assignments, err := c.roleAssignments(clients, informers, resolver, hub, hubRoles.Rbac().V1(), deliverer, reviews)
	if err != nil {
		return nil, err
	}
	var assignmentOptions multiclusterroleassignment.Options
	if assignments != nil {
		assignmentOptions = assignments.options
	}
	executors, bindings := c.executors(clients, hub, deliverer.Sources)
	restored := &restoredData{}
	restored.guard(&c.generic)
	table := Resources(Dependencies{
		Restore: restored.id,
		Permissions: clusterpermission.Options{
			Delivery:        deliverer,
			Authorizer:      reviews.ForUsers(c.extra.Reviewer),
			EscalationCheck: c.extra.EscalationCheck,
			HubNamespaces:   c.extra.NamespaceSource == NamespacesOfHub,
		},
		Assignments:     assignmentOptions,
		Authorizer:      c.generic.Authorization.Authorizer,
		Works:           manifestwork.Options{LimitBytes: c.extra.ManifestLimitBytes, Executors: executors},
		AccountBindings: bindings,
		Placement: &managedserviceaccount.Placement{
			Present:         presence.Check,
			SetsAndBindings: clients.sets.ClusterV1beta2(),
			CachedSets:      resolver,
		},
		MaximumTokenValidity: c.extra.MaximumTokenValidity,
		ReservedAccountNames: c.extra.ReservedAccountNames,
		Registration:         registering.dependencies,
		Quotas:               &c.extra.Quotas,
	})
	limits := c.limitRequests()
	importing, err := c.imports()
	if err != nil {
		return nil, err
	}
	watches := &definition.Watches{}
	for i := range table {
		table[i].Written = limits.written
		table[i].Watches = watches
		importing.Add(&table[i])
	}
	// The gate wraps the authorizer before anything else keeps a reference to it.
	registering.guard(&c.generic)
	virtual := []definition.Virtual{importRow(importing)}
	var fleet *fleetSearch
	if c.searched() {
		fleet, err = c.newSearch(hub, informers.clusters.Cluster().V1().ManagedClusters(), hubRoles, informers.works.Work().V1().ManifestWorks().Informer(), deliverer, limits, reviews)
		if err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, fleet.engine.Close())
			}
		}()
		if !c.extra.Search.Console {
			c.generic.MergedResourceConfig.DisableResources(searchv1alpha1.SchemeGroupVersion.WithResource(console.Resource))
		}
		dependencies := VirtualDependencies{Imports: importing, Search: SearchDependencies{
			Engine: fleet.engine, Scopes: fleet.scopes, Reports: fleet.reports, WatchMemory: limits.watchMemory,
		}, Access: fleet.reviews(informers, c.extra.Search.HubCluster)}
		if dependencies.Views, err = fleet.views(informers, hubRoles, c.extra.Search.HubCluster); err != nil {
			return nil, err
		}
		if dependencies.Search.Console, err = console.New(); err != nil {
			return nil, err
		}
		virtual = Virtual(dependencies)
		fleet.serveGraphQL(&c.generic)
	}
	generic, err := c.generic.New(serverName, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("building the generic server: %w", err)
	}
	groups, err := apiGroups(table, virtual, c.generic.MergedResourceConfig, c.generic.RESTOptionsGetter)
	if err != nil {
		return nil, err
	}
	if err := generic.InstallAPIGroups(groups...); err != nil {
		return nil, fmt.Errorf("installing the API groups: %w", err)
	}

	etcdClusters, err := connectEtcd(table, c.generic.RESTOptionsGetter, c.extra.EtcdFailover != nil)
	if err != nil {
		return nil, err
	}
	s := &Server{
		etcd: etcdClusters, stored: storedVersions(table), clusterStore: clusterStore(table, c.generic.RESTOptionsGetter),
		generic: generic, hub: hub, extra: c.extra, clients: clients, informers: informers, hubRoles: hubRoles, addons: addons, search: fleet,
		hubInformers: labelled, counters: countersOf(table), hubCheck: registering.check, events: broadcaster, certificate: certificate,
		watches: watches, restored: restored,
	}
	works := s.informers.works.Work().V1().ManifestWorks()
	repair, err := permissioncontroller.NewController(deliverer, permissioncontroller.Informers{
		Permissions: s.informers.own.Rbac().V1alpha1().ClusterPermissions(),
		Works:       works,
		Clusters:    s.informers.clusters.Cluster().V1().ManagedClusters(),
		Accounts:    s.informers.accounts.Authentication().V1beta1().ManagedServiceAccounts(),
		NoAccounts:  clients.accounts != clients.own,

		Addons: addons.Informer(), Roles: hubRoles.Rbac().V1().Roles(), ClusterRoles: hubRoles.Rbac().V1().ClusterRoles(),
	})
	if err != nil {
		return nil, err
	}
	s.controllers = append(s.controllers, repair.Run, transition.NewRecorder(recorder, transitions(clients, informers, assignments)...).Run)
	if s.assignments = assignments; assignments != nil {
		s.controllers = append(s.controllers, assignments.controller.Run)
	}
	s.controllers = append(s.controllers, registering.controllers...)
	s.addClusterSets(resolver)
	if clients.works == clients.own {
		// A hub that stores ManifestWorks itself also has controllers for them.
		s.controllers = append(s.controllers,
			workcontroller.NewTTLController(clients.works.WorkV1(), works).Run,
			workcontroller.NewWaitingController(clients.works.WorkV1(), works, s.informers.clusters.Cluster().V1().ManagedClusters()).Run,
			workcontroller.NewAgentBindingController(hub, clients.works.WorkV1(), s.hubInformers.Rbac().V1().RoleBindings()).Run)
	}
	if clients.accounts == clients.own {
		metadata, err := metadata.NewForConfig(c.hub)
		if err != nil {
			return nil, fmt.Errorf("building the client of the hub: %w", err)
		}
		if err := s.addAccounts(metadata, resolver, registering); err != nil {
			return nil, err
		}
	}
	return s, s.addHooks()
}

// clients contains a client for each group: a client of this server, or a client of the hub if the hub
// stores the group in CustomResourceDefinitions.
type clients struct {
	own, works, clusters, sets, accounts, addons versioned.Interface
}

func (c CompletedConfig) clients() (*clients, error) {
	loopback := rest.CopyConfig(c.generic.LoopbackClientConfig)
	loopback.QPS = -1
	own, err := versioned.NewForConfig(loopback)
	if err != nil {
		return nil, fmt.Errorf("building the loopback client: %w", err)
	}
	hub, err := versioned.NewForConfig(c.hub)
	if err != nil {
		return nil, fmt.Errorf("building the client of the hub: %w", err)
	}
	out := &clients{own: own, works: hub, clusters: hub, sets: hub, accounts: hub, addons: hub}
	if c.generic.MergedResourceConfig.ResourceEnabled(workv1.SchemeGroupVersion.WithResource("manifestworks")) {
		out.works = own
	}
	if c.generic.MergedResourceConfig.ResourceEnabled(clusterv1.SchemeGroupVersion.WithResource("managedclusters")) {
		out.clusters = own
	}
	if c.generic.MergedResourceConfig.ResourceEnabled(clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersets")) {
		out.sets = own
	}
	if c.generic.MergedResourceConfig.ResourceEnabled(authenticationv1beta1.SchemeGroupVersion.WithResource("managedserviceaccounts")) {
		out.accounts = own
	}
	if c.generic.MergedResourceConfig.ResourceEnabled(addonv1alpha1.SchemeGroupVersion.WithResource("managedclusteraddons")) {
		out.addons = own
	}
	return out, nil
}

// informerFactories are the informer factories of clients. Groups with the same client share a
// factory. If the hub stores accounts, they have a separate factory, because the hub may not serve
// them.
type informerFactories struct {
	own, works, clusters, sets, accounts externalversions.SharedInformerFactory
}

func (c *clients) informers() informerFactories {
	factories := map[versioned.Interface]externalversions.SharedInformerFactory{}
	separate := func(client versioned.Interface) externalversions.SharedInformerFactory {
		return externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithTransform(withoutManagedFields))
	}
	of := func(client versioned.Interface) externalversions.SharedInformerFactory {
		if factories[client] == nil {
			factories[client] = separate(client)
		}
		return factories[client]
	}
	out := informerFactories{own: of(c.own), works: of(c.works), clusters: of(c.clusters), sets: of(c.sets), accounts: of(c.own)}
	if c.accounts != c.own {
		out.accounts = separate(c.accounts)
	}
	return out
}

// withoutManagedFields makes caches smaller. No reader needs managed fields, and an update without them
// keeps the stored ones.
func withoutManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
