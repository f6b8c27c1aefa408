package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/access"
	"open-cluster-management.io/hub-apiserver/pkg/access/feed"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/authz/callers"
	"open-cluster-management.io/hub-apiserver/pkg/authz/visibility"
	clusterclients "open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned/typed/cluster/v1"
	clusterinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/cluster/v1"
	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registry/access/fleetreview"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/kubevirtproject"
	managedclusterview "open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/managedcluster"
	managedclustersetview "open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/managedclusterset"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/userpermission"
	"open-cluster-management.io/hub-apiserver/pkg/registry/clusterview/view"
	"open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/embedded"
	"open-cluster-management.io/hub-apiserver/pkg/search/graphql"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/postgres"
	"open-cluster-management.io/hub-apiserver/pkg/search/serving"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// SearchEngine is the engine that stores the resources of the fleet.
type SearchEngine string

const (
	// EmbeddedSearch stores them in this process, for one server.
	EmbeddedSearch SearchEngine = "embedded"
	// PostgresSearch stores them in PostgreSQL, for several servers.
	PostgresSearch SearchEngine = "postgres"
	// NoSearch disables search.
	NoSearch SearchEngine = "none"
)

var SearchEngines = []SearchEngine{EmbeddedSearch, PostgresSearch, NoSearch}

const (
	searchOpenTimeout = time.Minute
	embeddedGCPercent = 40
	graphqlResource   = "graphql"
	// clusterPeriod is the interval at which the number of Nodes of each cluster is counted. clusterRetry is
	// the interval while the engine is unavailable.
	clusterPeriod = time.Minute
	clusterRetry  = 5 * time.Second
)

type SearchConfig struct {
	Engine      SearchEngine
	DataDir     string
	PostgresURL string
	// PostgresReplicaURLs are the URLs of its read replicas, and PostgresMaxStaleness is the maximum age of their state.
	PostgresReplicaURLs  []string
	PostgresMaxStaleness time.Duration
	Visibility           visibility.Mode
	HubCluster           string
	// MaxRequestCost is the processor time that the searches of one request may take in the embedded engine.
	MaxRequestCost time.Duration
	// ClusterResources and ClusterBytes bound the stored resources of one cluster.
	ClusterResources    int
	ClusterBytes        int64
	Console             bool
	ByClusterPermission bool
}

type fleetSearch struct {
	engine *search.Loading
	// database is nil for an engine without a database.
	database *postgres.Reach
	scopes   *visibility.Compiler
	reports  *ingest.Handler
	graphql  http.Handler
	bindings kubeinformers.SharedInformerFactory
	// clusters keeps the resources of kind Cluster up to date.
	clusters reconcile.Loop
	// access contains the RBAC of the fleet. accessFeed fills it from reports, and scopes from the informers of the hub.
	access     *access.Index
	accessFeed *feed.Feed
}

// openEngine starts to load the engine, so that everything else is served meanwhile.
func (c *SearchConfig) openEngine(database *postgres.Reach) (*search.Loading, error) {
	switch c.Engine {
	case EmbeddedSearch:
		// Collect garbage early: most memory is the index of the engine, which hardly changes.
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(embeddedGCPercent)
		}
		data, err := embedded.Begin(c.DataDir, embedded.Options{MaxCost: c.MaxRequestCost, Caller: waitingCaller})
		if errors.Is(err, search.ErrInUse) {
			return nil, fmt.Errorf("%w: stop the other server, or run several servers with --search-engine=%s", err, PostgresSearch)
		}
		if err != nil {
			return nil, err
		}
		return search.Load(func(ctx context.Context) (search.Engine, error) { return data.Load(ctx) }), nil
	case PostgresSearch:
		return search.Load(func(ctx context.Context) (search.Engine, error) {
			ctx, cancel := context.WithTimeout(ctx, searchOpenTimeout)
			defer cancel()
			return postgres.Open(ctx, postgres.Options{
				DSN: c.PostgresURL, ReplicaDSNs: c.PostgresReplicaURLs, MaxStaleness: c.PostgresMaxStaleness, MaxCost: c.MaxRequestCost, Reach: database,
			})
		}), nil
	}
	return nil, fmt.Errorf("unknown search engine %q", c.Engine)
}

// waitingCaller returns the caller of a search that waits for its turn, or "" for callers without limits.
func waitingCaller(ctx context.Context) string {
	if u, ok := request.UserFrom(ctx); ok && !callers.Exempt(u) {
		return callers.Of(u)
	}
	return ""
}

func (c CompletedConfig) newSearch(a *assembly) (_ *fleetSearch, err error) {
	config, hub, clusters := c.extra.Search, a.server.hub, a.server.informers.clusters.Cluster().V1().ManagedClusters()
	live := a.server.clients.clusters.ClusterV1().ManagedClusters()
	out := &fleetSearch{
		bindings: kubeinformers.NewSharedInformerFactoryWithOptions(hub, 0, kubeinformers.WithTransform(onlySubjects)),
		access:   access.New(),
	}
	if config.Engine == PostgresSearch {
		out.database = postgres.NewReach()
	}
	if out.engine, err = config.openEngine(out.database); err != nil {
		return nil, fmt.Errorf("search engine %s: %w", config.Engine, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.engine.Close())
		}
	}()
	if err := out.receiveReports(config, clusters, live); err != nil {
		return nil, err
	}
	scopes, err := c.scopes(a, out, clusters)
	if err != nil {
		return nil, err
	}
	if out.scopes, err = visibility.New(scopes); err != nil {
		return nil, err
	}
	out.accessFeed = feed.New(feed.Config{Engine: out.engine, Index: out.access, HubCluster: config.HubCluster, States: out.reports.States})
	out.graphql, err = graphql.New(graphql.Config{Engine: out.engine, Scopes: out.scopes, Stale: out.staleClusters, Authorizer: c.generic.Authorization.Authorizer, Watches: a.limits.watches, WatchMemory: a.limits.watchMemory})
	return out, err
}

// receiveReports builds the handler of reports, and the loop that keeps the resources of kind Cluster up to date.
func (f *fleetSearch) receiveReports(config *SearchConfig, clusters clusterinformers.ManagedClusterInformer, live clusterclients.ManagedClusterInterface) (err error) {
	known := func(cluster string) *clusterv1.ManagedCluster {
		found, err := clusters.Lister().Get(cluster)
		if err != nil {
			return nil
		}
		return found
	}
	f.reports, err = ingest.New(ingest.Config{
		Engine: f.engine, HubCluster: config.HubCluster, Clusters: func() ([]string, error) { return namesOf(clusters) }, Version: version.Short(),
		ClusterResources: config.ClusterResources, ClusterBytes: config.ClusterBytes,
		ClusterExists: func(cluster string) bool { return known(cluster) != nil },
		ClusterDeleted: func(ctx context.Context, cluster string) (bool, error) {
			_, err := live.Get(ctx, cluster, metav1.GetOptions{})
			if reconcile.Gone(err, cluster) {
				return true, nil
			}
			return false, err
		},
		Cluster: known,
	})
	if err != nil {
		return err
	}
	if _, err := clusters.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { f.reports.Notify() }}); err != nil {
		return fmt.Errorf("following ManagedClusters: %w", err)
	}
	f.clusters = reconcile.Loop{
		Name:  "search-cluster-resources",
		Feeds: []reconcile.Feed{{Informer: clusters.Informer(), Keys: reconcile.Own}},
		Reconcile: func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
			err := f.reports.UpdateCluster(ctx, key.Name)
			if errors.Is(err, search.ErrUnavailable) {
				klog.FromContext(ctx).V(2).Info("Cannot update the resource of kind Cluster yet", "err", err)
				return 0, reconcile.RequeueAfter(wait.Jitter(clusterRetry, 1))
			}
			if known(key.Name) == nil {
				return 0, err
			}
			return wait.Jitter(clusterPeriod, 1), err
		},
	}
	return nil
}

func (c CompletedConfig) scopes(a *assembly, out *fleetSearch, clusters clusterinformers.ManagedClusterInformer) (visibility.Config, error) {
	reviewing, err := kubernetes.NewForConfig(c.hub)
	if err != nil {
		return visibility.Config{}, fmt.Errorf("building the client of access reviews: %w", err)
	}
	// The compiler caches scopes, so the authorizer needs no cache.
	reviews, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: reviewing.AuthorizationV1(), WebhookRetryBackoff: genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return visibility.Config{}, fmt.Errorf("building the authorizer of searches: %w", err)
	}
	roles := a.server.hubRoles.Rbac().V1()
	scopes := visibility.Config{
		Mode:                c.extra.Search.Visibility,
		Roles:               roles.Roles().Informer(),
		ClusterRoles:        roles.ClusterRoles().Informer(),
		RoleBindings:        out.bindings.Rbac().V1().RoleBindings().Informer(),
		ClusterRoleBindings: out.bindings.Rbac().V1().ClusterRoleBindings().Informer(),
		Authorizer:          a.reviews.ForUsers(reviews),
		ReviewAuthorizers:   reviewAuthorizers(a.server.hub),
		Fleet:               out.access,
		HubCluster:          c.extra.Search.HubCluster,
		HubClasses:          out.engine.HubClasses,
		Clusters: func() []string {
			names, err := namesOf(clusters)
			if err != nil {
				return nil
			}
			return names
		},
	}
	if c.extra.Search.ByClusterPermission {
		scopes.Works, scopes.Delivered = a.server.informers.works.Work().V1().ManifestWorks().Informer(), a.deliverer.Delivered
	}
	return scopes, nil
}

func (f *fleetSearch) views(informers informerFactories, roles kubeinformers.SharedInformerFactory, hubCluster string) (out Views, err error) {
	clusters, sets := informers.clusters.Cluster().V1().ManagedClusters(), informers.sets.Cluster().V1beta2().ManagedClusterSets()
	bound := &view.Bound{Index: f.access, Clusters: func() ([]string, error) { return namesOf(clusters) }, HubCluster: hubCluster}
	out.KubeVirtProjects = kubevirtproject.NewREST(bound)
	if out.ManagedClusters, err = managedclusterview.NewREST(clusters.Informer(), f.scopes); err != nil {
		return out, err
	}
	if out.ManagedClusterSets, err = managedclustersetview.NewREST(sets.Informer(), f.scopes); err != nil {
		return out, err
	}
	out.UserPermissions, err = userpermission.NewREST(userpermission.Options{
		Bound: bound, ClusterRoles: roles.Rbac().V1().ClusterRoles().Informer(), Clusters: clusters.Informer(), Scopes: f.scopes,
	})
	return out, err
}

// namesOf returns the names of all ManagedClusters, or an error while they are not listed.
func namesOf(clusters clusterinformers.ManagedClusterInformer) ([]string, error) {
	if !clusters.Informer().HasSynced() {
		return nil, errors.New("the ManagedClusters are not listed yet")
	}
	existing, err := clusters.Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(existing))
	for _, cluster := range existing {
		out = append(out, cluster.Name)
	}
	return out, nil
}

func (f *fleetSearch) reviews(informers informerFactories, hubCluster string) fleetreview.Options {
	clusters, sets := informers.clusters.Cluster().V1().ManagedClusters(), informers.sets.Cluster().V1beta2().ManagedClusterSets()
	permissions := informers.own.Rbac().V1alpha1().ClusterPermissions()
	return fleetreview.Options{
		Permissions: permissions.Lister(), Index: f.access, Scopes: f.scopes, Clusters: clusters.Lister(), Sets: sets.Lister(), HubCluster: hubCluster,
		Synced: func() bool {
			return clusters.Informer().HasSynced() && sets.Informer().HasSynced() && permissions.Informer().HasSynced()
		},
	}
}

// staleClusters returns the names of the clusters whose resources are unknown or may be out of date.
func (f *fleetSearch) staleClusters(ctx context.Context) ([]string, error) {
	states, err := f.reports.States(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range states {
		if state := &states[i]; state.Stale() {
			out = append(out, state.Name)
		}
	}
	return out, nil
}

// reviewAuthorizers returns a function that reviews whether the hub asks another authorizer than RBAC: a
// SelfSubjectRulesReview is incomplete if one decides for all users, and a probe shows the others.
func reviewAuthorizers(hub kubernetes.Interface) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		rules, err := hub.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: metav1.NamespaceDefault},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("reviewing rules: %w", err)
		}
		if rules.Status.Incomplete {
			return true, nil
		}
		probe, err := hub.AuthorizationV1().SubjectAccessReviews().Create(ctx, rbac.NewProbe(), metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("reviewing the authorizers of the hub: %w", err)
		}
		return rbac.ShowsOtherAuthorizers(&probe.Status), nil
	}
}

// onlySubjects removes all fields of a binding except its identity, its subjects and its role.
func onlySubjects(obj any) (any, error) {
	switch binding := obj.(type) {
	case *rbacv1.RoleBinding:
		binding.ObjectMeta = identityOf(&binding.ObjectMeta)
	case *rbacv1.ClusterRoleBinding:
		binding.ObjectMeta = identityOf(&binding.ObjectMeta)
	}
	return obj, nil
}

// addHooks adds the background work of search to the generic server. A server that has just started is not ready
// before it can search. If it lacks permission to read the RBAC of the hub, it is ready without search.
func (f *fleetSearch) addHooks(s *Server, hub *hubAccess) {
	s.checks["search"] = func(*http.Request) error {
		if !f.scopes.HasSynced() && !hub.deniesSearch() {
			return visibility.ErrNotSynced
		}
		return nil
	}
	maps.Copy(s.hooks, map[string]func(context.Context){
		"search-permissions": func(ctx context.Context) {
			f.bindings.Start(ctx.Done())
			defer f.bindings.Shutdown()
			f.scopes.Run(ctx)
			<-ctx.Done()
		},
		"search-clusters":          f.reports.Run,
		"search-cluster-resources": f.clusters.Run,
		// It does not delay readiness: until it is done, the index says that clusters are unknown.
		"access-feed": f.accessFeed.Run,
	})
	if f.database != nil && s.extra.Embedded == nil {
		check := newDatabaseCheck(f.database.Away, s.etcd[0].Client, s.etcd[0].Prefix, s.extra.Identity)
		s.hooks["search-database"], s.checks["search-database"] = check.run, check.ready
	}
}

func (c CompletedConfig) searched() bool {
	return c.extra.Search != nil && c.generic.MergedResourceConfig.ResourceEnabled(searchv1alpha1.SchemeGroupVersion.WithResource("searches"))
}

// serveGraphQL makes a generic server serve GraphQL below the path of the group, and adapts other requests to
// the group. The server authenticates the caller and authorizes it to create or list graphql in the group. Like
// watches, subscriptions have no deadline.
func (f *fleetSearch) serveGraphQL(generic *genericapiserver.CompletedConfig) {
	path := genericapiserver.APIGroupPrefix + "/" + searchv1alpha1.SchemeGroupVersion.String() + "/" + graphqlResource
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(api http.Handler, config *genericapiserver.Config) http.Handler {
		return build(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				f.graphql.ServeHTTP(w, r)
				return
			}
			api.ServeHTTP(w, serving.Adapt(r))
		}), config)
	}
	longRunning := generic.LongRunningFunc
	generic.LongRunningFunc = func(r *http.Request, info *request.RequestInfo) bool {
		return r.URL.Path == path && graphql.LongRunning(r) || longRunning(r, info)
	}
}
