// Package apiserver assembles the API server: a Config is completed and becomes
// a Server, which runs. resources.go holds the one table of everything served.
package apiserver

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	componentbaseconfig "k8s.io/component-base/config"
	baseversion "k8s.io/component-base/version"

	"open-cluster-management.io/hub-apiserver/pkg/accountsync"
	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	registerv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/register/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/generated/openapi"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/registry/work/manifestwork"
	"open-cluster-management.io/hub-apiserver/pkg/worksync"
)

const serverName = "hub-apiserver"

// Requests per second that the server may send to the hub on its own behalf.
const (
	hubQPS   = 200
	hubBurst = 400
)

// ExtraConfig is what the server needs beyond a generic API server.
type ExtraConfig struct {
	// Identity names this server among its replicas.
	Identity string
	// Namespace of the hub that holds the server's leases.
	Namespace string
	// ManifestLimitBytes bounds the manifests of one ManifestWork.
	ManifestLimitBytes int64
	// EscalationCheck says what becomes of ClusterPermissions that grant more than
	// their author may grant.
	EscalationCheck clusterpermission.EscalationCheck
	// NamespaceSource is where namespaceSelectors of ClusterPermissions select from.
	NamespaceSource NamespaceSource
	// WorkExecutor is in whose name the works of ClusterPermissions are applied; nil
	// for the agent's own.
	WorkExecutor *types.NamespacedName
	// NilExecutor says what becomes of works that name no executor.
	NilExecutor executor.NilExecutor
	// MaximumTokenValidity bounds how long tokens of ManagedServiceAccounts are valid; 0 for no bound.
	MaximumTokenValidity time.Duration
	// ReservedAccountNames are names that no new ManagedServiceAccount may have.
	ReservedAccountNames []string
	// LeaderElection decides which replica runs the controllers.
	LeaderElection componentbaseconfig.LeaderElectionConfiguration
	// Embedded is the etcd in this process; nil when there is a cluster of etcd.
	Embedded *etcd.Server
	// Search is how the fleet is searched; nil for a server without search.
	Search *SearchConfig
	// Quotas bound what namespaces hold, and single objects.
	Quotas Quotas
	// Registration is how managed clusters register, if this server serves ManagedClusters.
	Registration *RegistrationConfig
	// Requests are the limits of each caller.
	Requests RequestLimits
}

// Config is what a server is made of.
type Config struct {
	Generic *genericapiserver.RecommendedConfig
	Extra   ExtraConfig
}

// CompletedConfig is a Config that Complete has returned; there is no other way to get one.
type CompletedConfig struct {
	*completedConfig
}

type completedConfig struct {
	generic genericapiserver.CompletedConfig
	hub     *rest.Config
	extra   *ExtraConfig
}

// DescribeAPI gives a configuration what OpenAPI says of the server.
func DescribeAPI(generic *genericapiserver.RecommendedConfig) {
	namer := openapinamer.NewDefinitionNamer(scheme.Scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIConfig.Info.Title = serverName
	generic.OpenAPIV3Config.Info.Title = serverName
	generic.OpenAPIConfig.Info.Version = baseversion.Get().GitVersion
	generic.OpenAPIV3Config.Info.Version = baseversion.Get().GitVersion
}

// Complete fills in what can be derived.
func (c *Config) Complete() CompletedConfig {
	hub := rest.CopyConfig(c.Generic.ClientConfig)
	hub.QPS, hub.Burst = hubQPS, hubBurst
	return CompletedConfig{&completedConfig{generic: c.Generic.Complete(), hub: hub, extra: &c.Extra}}
}

// New builds the server. Nothing runs before Server.Run.
func (c CompletedConfig) New() (_ *Server, err error) {
	hub, err := kubernetes.NewForConfig(c.hub)
	if err != nil {
		return nil, fmt.Errorf("building the hub's client: %w", err)
	}
	if serving := c.generic.SecureServing; serving != nil && serving.ClientCA != nil {
		serving.ClientCA = &loadedCA{CAContentProvider: serving.ClientCA, hub: hub}
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
	deliverer := c.deliverer(clients, informers, hub, hubRoles.Rbac().V1(), addons)
	labelled := kubeinformers.NewSharedInformerFactoryWithOptions(hub, 0, kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.LabelSelector = clusterv1.ClusterNameLabel
	}), kubeinformers.WithTransform(func(obj any) (any, error) { return withoutManagedFields(csr.Small(obj)) }))
	registering := &clusterRegistration{}
	if clients.clusters == clients.own {
		if registering, err = c.newRegistration(clients, informers, hub, labelled); err != nil {
			return nil, err
		}
	} else {
		c.generic.MergedResourceConfig.DisableVersions(registerv1alpha1.SchemeGroupVersion)
	}
	executors, bindings := c.executors(clients, hub, deliverer.Sources)
	table := Resources(Dependencies{
		Permissions: clusterpermission.Options{
			Delivery:        deliverer,
			Authorizer:      c.generic.Authorization.Authorizer,
			EscalationCheck: c.extra.EscalationCheck,
			HubNamespaces:   c.extra.NamespaceSource == NamespacesOfHub,
		},
		Authorizer:      c.generic.Authorization.Authorizer,
		Works:           manifestwork.Options{LimitBytes: c.extra.ManifestLimitBytes, Executors: executors},
		AccountBindings: bindings,
		Placement: &accountsync.Placement{
			Clusters:        clients.clusters.ClusterV1(),
			SetsAndBindings: clients.sets.ClusterV1beta2(),
			CachedClusters:  informers.clusters.Cluster().V1().ManagedClusters().Lister(),
			CachedSets:      resolver,
		},
		MaximumTokenValidity: c.extra.MaximumTokenValidity,
		ReservedAccountNames: c.extra.ReservedAccountNames,
		Registration:         registering.dependencies,
		Quotas:               &c.extra.Quotas,
	})
	limits := c.limitRequests()
	for i := range table {
		table[i].Written = limits.written
	}
	// The gate comes before whatever keeps the authorizer.
	registering.guard(&c.generic)
	var virtual []definition.Virtual
	var fleet *fleetSearch
	if c.searched() {
		fleet, err = c.newSearch(hub, informers.clusters.Cluster().V1().ManagedClusters(), hubRoles, informers.works.Work().V1().ManifestWorks().Informer(), deliverer, limits)
		if err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, fleet.engine.Close())
			}
		}()
		virtual = Virtual(SearchDependencies{Engine: fleet.engine, Scopes: fleet.scopes, Reports: fleet.reports, WatchMemory: limits.watchMemory})
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

	s := &Server{
		generic: generic, hub: hub, extra: c.extra, clients: clients, informers: informers, hubRoles: hubRoles, addons: addons, search: fleet,
		hubInformers: labelled, counters: countersOf(table), hubCheck: registering.check,
	}
	works := s.informers.works.Work().V1().ManifestWorks()
	repair, err := worksync.NewController(deliverer, worksync.Informers{
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
	s.controllers = append(s.controllers, repair.Run)
	s.controllers = append(s.controllers, registering.controllers...)
	s.addClusterSets(resolver)
	if clients.works == clients.own {
		// A hub that keeps the works elsewhere has its own way to expire them, and to
		// let agents clean up.
		s.controllers = append(s.controllers,
			worksync.NewExpirer(clients.works.WorkV1(), works).Run,
			worksync.NewAgentAccess(hub, clients.works.WorkV1(), s.hubInformers.Rbac().V1().RoleBindings()).Run)
	}
	if clients.accounts == clients.own {
		metadata, err := metadata.NewForConfig(c.hub)
		if err != nil {
			return nil, fmt.Errorf("building the hub's client: %w", err)
		}
		if err := s.addAccounts(metadata, resolver, registering); err != nil {
			return nil, err
		}
	}
	return s, s.addHooks()
}

// clients reach each group where the hub keeps it: in this server, or in the
// hub's own CustomResourceDefinitions for a group that this server does not serve.
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
		return nil, fmt.Errorf("building the hub's client: %w", err)
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

// informerFactories follow clients: one factory for each place. That of accounts
// which the hub keeps is apart, since the hub may have none.
type informerFactories struct {
	own, works, clusters, sets, accounts externalversions.SharedInformerFactory
}

func (c *clients) informers() informerFactories {
	factories := map[versioned.Interface]externalversions.SharedInformerFactory{}
	apart := func(client versioned.Interface) externalversions.SharedInformerFactory {
		return externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithTransform(withoutManagedFields))
	}
	of := func(client versioned.Interface) externalversions.SharedInformerFactory {
		if factories[client] == nil {
			factories[client] = apart(client)
		}
		return factories[client]
	}
	out := informerFactories{own: of(c.own), works: of(c.works), clusters: of(c.clusters), sets: of(c.sets), accounts: of(c.own)}
	if c.accounts != c.own {
		out.accounts = apart(c.accounts)
	}
	return out
}

// withoutManagedFields keeps caches small: nobody who reads them looks at
// managed fields, and an update without any leaves the stored ones alone.
func withoutManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
