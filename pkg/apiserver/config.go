// Package apiserver assembles the API server: a Config is completed, builds a Server, and the Server
// runs. resources.go contains the table of all served resources.
package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/component-base/featuregate"

	addonv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/addon/v1alpha1"
	authenticationv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	authenticationvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/validation"
	clusterv1 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/hub-apiserver/pkg/apis/cluster/v1beta2"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/authz/executor"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	"open-cluster-management.io/hub-apiserver/pkg/generated/openapi"
	"open-cluster-management.io/hub-apiserver/pkg/keepalive"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
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
	Namespace          string
	ManifestLimitBytes int64
	EscalationCheck    clusterpermission.EscalationCheck
	NamespaceSource    NamespaceSource
	// RequireManagedCluster refuses new objects that would wait for a cluster to join.
	RequireManagedCluster bool
	// WorkExecutor is the executor of the ManifestWorks of ClusterPermissions. If it is nil, the agent
	// applies them as itself.
	WorkExecutor   *types.NamespacedName
	NilExecutor    executor.NilExecutor
	Accounts       authenticationvalidation.Validator
	LeaderElection componentbaseconfig.LeaderElectionConfiguration
	// Embedded is the etcd in this process, or nil if the server uses another etcd.
	Embedded *etcd.Server
	// EtcdFailover makes the stores use the other members if one does not respond. It is nil for a single member.
	EtcdFailover *etcd.Failover
	// Search is nil for a server without fleet search.
	Search *SearchConfig
	Quotas Quotas
	// Registration applies if this server serves ManagedClusters.
	Registration *RegistrationConfig
	Requests     RequestLimits
	// Reviewer decides like the authorizer of the generic configuration, with another client of the hub. It is for
	// requests that need many decisions, so that these delay no other requests.
	Reviewer authorizer.Authorizer
	// ServingCertificate is the policy of the serving certificate in a Secret of the hub. It is nil if
	// the server uses files or a self-signed certificate.
	ServingCertificate *servingcert.Policy
}

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

func DescribeAPI(generic *genericapiserver.RecommendedConfig) {
	namer := openapinamer.NewDefinitionNamer(scheme.Scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIConfig.Info.Title = serverName
	generic.OpenAPIV3Config.Info.Title = serverName
	generic.OpenAPIConfig.Info.Version = version.Short()
	generic.OpenAPIV3Config.Info.Version = version.Short()
}

func (c *Config) Complete() CompletedConfig {
	hub := rest.CopyConfig(c.Generic.ClientConfig)
	hub.QPS, hub.Burst = hubQPS, hubBurst
	hub.Wrap(keepalive.Repeat)
	return CompletedConfig{&completedConfig{generic: c.Generic.Complete(), hub: hub, extra: &c.Extra}}
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
	choose := func(version schema.GroupVersion, resource string) versioned.Interface {
		if c.generic.MergedResourceConfig.ResourceEnabled(version.WithResource(resource)) {
			return own
		}
		return hub
	}
	return &clients{
		own:      own,
		works:    choose(workv1.SchemeGroupVersion, "manifestworks"),
		clusters: choose(clusterv1.SchemeGroupVersion, "managedclusters"),
		sets:     choose(clusterv1beta2.SchemeGroupVersion, "managedclustersets"),
		accounts: choose(authenticationv1beta1.SchemeGroupVersion, "managedserviceaccounts"),
		addons:   choose(addonv1alpha1.SchemeGroupVersion, "managedclusteraddons"),
	}, nil
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
		return externalversions.NewSharedInformerFactoryWithOptions(client, 0, externalversions.WithTransform(reconcile.DropManagedFields))
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

const (
	// SearchByClusterPermission includes the resources of managed clusters that the caller may list there: by the RBAC
	// of the cluster if it is known, and otherwise by ClusterPermissions. It assumes that users of the same name on the
	// hub and on managed clusters are the same.
	SearchByClusterPermission featuregate.Feature = "SearchByClusterPermission"
	// ManagedClusterAutoApproval accepts clusters automatically by rules.
	ManagedClusterAutoApproval featuregate.Feature = "ManagedClusterAutoApproval"
)

// FeatureGates are the feature gates of the server in addition to those of Kubernetes.
var FeatureGates = map[featuregate.Feature]featuregate.FeatureSpec{
	SearchByClusterPermission:  {Default: false, PreRelease: featuregate.Alpha},
	ManagedClusterAutoApproval: {Default: false, PreRelease: featuregate.Beta},
}
