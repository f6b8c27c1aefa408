package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	kubeinformers "k8s.io/client-go/informers"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/console"
	permissioncontroller "open-cluster-management.io/hub-apiserver/pkg/controllers/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedclusterset"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/managedserviceaccount"
	workcontroller "open-cluster-management.io/hub-apiserver/pkg/controllers/manifestwork"
	"open-cluster-management.io/hub-apiserver/pkg/controllers/transition"
	"open-cluster-management.io/hub-apiserver/pkg/permissions"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registration/csr"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/registry/migration/imports"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/multiclusterroleassignment"
	"open-cluster-management.io/hub-apiserver/pkg/registry/work/manifestwork"
	"open-cluster-management.io/hub-apiserver/pkg/servingcert"
)

// assembly builds a server. It contains what its parts need of each other until then.
type assembly struct {
	CompletedConfig
	server *Server

	recorder  events.EventRecorder
	resolver  *managedclusterset.Resolver
	presence  *registration.Presence
	deliverer *permissions.Deliverer
	// assignments is nil if the server does not serve MulticlusterRoleAssignments.
	assignments *multiclusterroleassignment.Options
	registering clusterRegistration
	reviews     *callers.Reviews
	limits      *callerLimits
	importing   *imports.Stores
	table       []definition.Resource
	virtual     []definition.Virtual
}

// New builds the server of the data of AwaitData. Nothing runs before Server.Run.
func (c CompletedConfig) New(data *Data) (*Server, error) {
	a := &assembly{CompletedConfig: c, reviews: callers.NewReviews(), server: &Server{
		Data: data, drained: make(chan struct{}), watches: &definition.Watches{}, hooks: map[string]func(context.Context){}, checks: map[string]func(*http.Request) error{},
	}}
	for _, step := range []func() error{
		a.connect, a.deliver, a.assign, a.register, a.store, a.search, a.install, a.control, a.server.addHooks,
	} {
		if err := step(); err != nil {
			if a.server.search != nil {
				err = errors.Join(err, a.server.search.engine.Close())
			}
			return nil, err
		}
	}
	return a.server, nil
}

// connect builds the informers, and the authentication of requests that the hub forwards.
func (a *assembly) connect() (err error) {
	s := a.server
	if serving := a.generic.SecureServing; serving.ClientCA != nil {
		serving.ClientCA = &loadedCA{CAContentProvider: serving.ClientCA, hub: s.hub}
	}
	if authentication := &a.generic.Authentication; authentication.RequestHeaderConfig != nil {
		authentication.Authenticator = newFrontProxy(authentication.RequestHeaderConfig, s.hub, authentication.Authenticator)
		a.generic.Authorization.Authorizer = authorizedByHub(a.generic.Authorization.Authorizer)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: s.hub.EventsV1()})
	s.events, a.recorder = broadcaster, broadcaster.NewRecorder(scheme.Scheme, serverName)
	if err := a.keepCertificate(broadcaster); err != nil {
		return err
	}
	s.informers = s.clients.informers()
	s.hubRoles = kubeinformers.NewSharedInformerFactoryWithOptions(s.hub, 0, kubeinformers.WithTransform(onlyRules))
	s.hubInformers = kubeinformers.NewSharedInformerFactoryWithOptions(s.hub, 0, kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.LabelSelector = clusterv1.ClusterNameLabel
	}), kubeinformers.WithTransform(func(obj any) (any, error) { return reconcile.DropManagedFields(csr.Small(obj)) }))
	return nil
}

// deliver builds the delivery of ClusterPermissions, and what it depends on.
func (a *assembly) deliver() (err error) {
	s := a.server
	sets := s.informers.sets.Cluster().V1beta2()
	a.resolver, err = managedclusterset.NewResolver(sets.ManagedClusterSets(), sets.ManagedClusterSetBindings(), s.informers.clusters.Cluster().V1().ManagedClusters())
	if err != nil {
		return err
	}
	if err := s.followAddons(); err != nil {
		return err
	}
	a.presence = &registration.Presence{
		Clusters: s.clients.clusters.ClusterV1(), CachedClusters: s.informers.clusters.Cluster().V1().ManagedClusters().Lister(),
		Required: a.extra.RequireManagedCluster,
	}
	if s.clients.clusters == s.clients.own {
		a.presence.Registrations = s.clients.own.RegisterV1alpha1()
	}
	a.deliverer = a.newDeliverer()
	return nil
}

// store builds the table of stored resources, and the handlers around all requests.
func (a *assembly) store() (err error) {
	s := a.server
	executors, bindings := a.executors()
	a.table = Resources(Dependencies{
		Restore: s.restore,
		Permissions: clusterpermission.Options{
			Delivery:        a.deliverer,
			Authorizer:      a.reviews.ForUsers(a.extra.Reviewer),
			EscalationCheck: a.extra.EscalationCheck,
			HubNamespaces:   a.extra.NamespaceSource == NamespacesOfHub,
		},
		Assignments:     ptr.Deref(a.assignments, multiclusterroleassignment.Options{}),
		Authorizer:      a.generic.Authorization.Authorizer,
		Works:           manifestwork.Options{LimitBytes: a.extra.ManifestLimitBytes, Executors: executors},
		AccountBindings: bindings,
		Placement: &managedserviceaccount.Placement{
			Present: a.presence.Check, SetsAndBindings: s.clients.sets.ClusterV1beta2(), CachedSets: a.resolver,
		},
		Accounts:     a.extra.Accounts,
		Registration: a.registering.dependencies,
		Quotas:       &a.extra.Quotas,
	})
	a.limits = a.limitRequests()
	if a.importing, err = a.imports(); err != nil {
		return err
	}
	for i := range a.table {
		if counter := a.table[i].Counter; counter != nil {
			s.counters, s.counting = append(s.counters, counter), append(s.counting, counter.Run)
		}
		a.table[i].Written, a.table[i].Watches = a.limits.written, s.watches
		a.importing.Add(&a.table[i])
	}
	// The gate wraps the authorizer before anything else keeps a reference to it.
	a.guard()
	return nil
}

// search builds search and all other resources that are not stored.
func (a *assembly) search() (err error) {
	s := a.server
	if !a.searched() {
		a.virtual = []definition.Virtual{importRow(a.importing)}
		return nil
	}
	fleet, err := a.newSearch(a)
	if err != nil {
		return err
	}
	s.search = fleet
	if !a.extra.Search.Console {
		a.generic.MergedResourceConfig.DisableResources(searchv1alpha1.SchemeGroupVersion.WithResource(console.Resource))
	}
	dependencies := VirtualDependencies{
		Engine: s.search.engine, Scopes: s.search.scopes, Reports: s.search.reports, WatchMemory: a.limits.watchMemory,
		Imports: a.importing, Access: s.search.reviews(s.informers, a.extra.Search.HubCluster),
	}
	if dependencies.Views, err = s.search.views(s.informers, s.hubRoles, a.extra.Search.HubCluster); err != nil {
		return err
	}
	if dependencies.Console, err = console.New(); err != nil {
		return err
	}
	a.virtual = Virtual(dependencies)
	s.search.serveGraphQL(&a.generic)
	return nil
}

// install builds the generic server with all resources.
func (a *assembly) install() (err error) {
	s := a.server
	if s.generic, err = a.generic.New(serverName, genericapiserver.NewEmptyDelegate()); err != nil {
		return fmt.Errorf("building the generic server: %w", err)
	}
	groups, err := apiGroups(a.table, a.virtual, a.generic.MergedResourceConfig, a.generic.RESTOptionsGetter)
	if err != nil {
		return err
	}
	if err := s.generic.InstallAPIGroups(groups...); err != nil {
		return fmt.Errorf("installing the API groups: %w", err)
	}
	return nil
}

// control builds the controllers that run on the leader.
func (a *assembly) control() error {
	s := a.server
	works, clusters := s.informers.works.Work().V1().ManifestWorks(), s.informers.clusters.Cluster().V1().ManagedClusters()
	repair, err := permissioncontroller.NewController(a.deliverer, permissioncontroller.Informers{
		Permissions: s.informers.own.Rbac().V1alpha1().ClusterPermissions(),
		Works:       works,
		Clusters:    clusters,
		Accounts:    s.informers.accounts.Authentication().V1beta1().ManagedServiceAccounts(),
		NoAccounts:  s.clients.accounts != s.clients.own,
		Addons:      s.addons.Informer(),
		Roles:       s.hubRoles.Rbac().V1().Roles(), ClusterRoles: s.hubRoles.Rbac().V1().ClusterRoles(),
	})
	if err != nil {
		return err
	}
	s.controllers = append(s.controllers, repair.Run, transition.NewRecorder(a.recorder, transitions(s.clients, s.informers, a.assignments != nil)...).Run)
	if s.clients.clusters == s.clients.own {
		s.controllers = append(s.controllers, managedclusterset.NewNamespaceController(s.clients.clusters.ClusterV1(), a.resolver).Run)
	}
	if s.clients.sets == s.clients.own {
		s.controllers = append(s.controllers, managedclusterset.NewController(s.clients.sets.ClusterV1beta2(), a.resolver).Run)
	}
	if s.clients.works == s.clients.own {
		// A hub that stores ManifestWorks itself also has controllers for them.
		s.controllers = append(s.controllers,
			workcontroller.NewTTLController(s.clients.works.WorkV1(), works).Run,
			workcontroller.NewWaitingController(s.clients.works.WorkV1(), works, clusters).Run,
			workcontroller.NewAgentBindingController(s.hub, s.clients.works.WorkV1(), s.hubInformers.Rbac().V1().RoleBindings()).Run)
	}
	if s.clients.accounts != s.clients.own {
		return nil
	}
	return a.addAccounts()
}

// keepCertificate makes the server serve and keep the certificate of a Secret, if it manages its certificate.
func (a *assembly) keepCertificate(broadcaster events.EventBroadcaster) error {
	if a.extra.ServingCertificate == nil {
		return nil
	}
	client, err := aggregator.NewForConfig(a.hub)
	if err != nil {
		return fmt.Errorf("building the client of APIServices: %w", err)
	}
	serving, recorder := a.generic.SecureServing, broadcaster.NewRecorder(kubernetesscheme.Scheme, serverName)
	controller := servingcert.New(*a.extra.ServingCertificate, a.server.hub, client, recorder, serving.Cert)
	serving.Cert = controller.Content()
	a.server.hooks["serving-certificate"], a.server.checks["serving-certificate"] = controller.Run, controller.Ready
	return nil
}
