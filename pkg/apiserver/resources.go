package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	authenticationvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/validation"
	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	proxyv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/addon/addondeploymentconfig"
	"open-cluster-management.io/hub-apiserver/pkg/registry/addon/clustermanagementaddon"
	"open-cluster-management.io/hub-apiserver/pkg/registry/addon/managedclusteraddon"
	"open-cluster-management.io/hub-apiserver/pkg/registry/authentication/managedserviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/registry/authentication/managedserviceaccountbinding"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedcluster"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedclusterset"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedclustersetbinding"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/registry/proxy/clusterstatus"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusternamespace"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
	managedclusterregistration "open-cluster-management.io/hub-apiserver/pkg/registry/register/managedcluster"
	"open-cluster-management.io/hub-apiserver/pkg/registry/search/fleetresource"
	"open-cluster-management.io/hub-apiserver/pkg/registry/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/registry/search/search"
	"open-cluster-management.io/hub-apiserver/pkg/registry/work/manifestwork"
	searchengine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/live"
)

// Dependencies are what resources need beside their storage.
type Dependencies struct {
	// Permissions are what ClusterPermissions need.
	Permissions clusterpermission.Options
	// Authorizer tells what callers may do beyond the write they ask for.
	Authorizer authorizer.Authorizer
	// Works are what ManifestWorks need.
	Works manifestwork.Options
	// AccountBindings are given their store by the table; nil for a server that does not
	// serve any.
	AccountBindings *managedserviceaccountbinding.Bindings
	// Placement knows where ManagedServiceAccounts may be.
	Placement managedserviceaccount.Placement
	// MaximumTokenValidity bounds how long their tokens are valid; 0 for no bound.
	MaximumTokenValidity time.Duration
	// ReservedAccountNames are names that no new one may have.
	ReservedAccountNames []string
	// Registration registers managed clusters; nil for a server that does not.
	Registration *RegistrationDependencies
	// Quotas change the limits of the rows; nil leaves them as they are.
	Quotas *Quotas
}

// RegistrationDependencies are what ManagedClusters and their registrations need of each other.
type RegistrationDependencies struct {
	Registrar *registration.Registrar
	// Records and Decisions, which the Registrar has, are given their stores by the table.
	Records   *managedclusterregistration.Records
	Decisions *managedcluster.Decisions
}

// SearchDependencies are what the group search.open-cluster-management.io needs.
type SearchDependencies struct {
	Engine  searchengine.Engine
	Scopes  searchengine.Scopes
	Reports *ingest.Handler
	// WatchMemory bounds what watches remember; nil for no bound.
	WatchMemory *live.Memory
}

// Resources is the one table of everything stored.
func Resources(d Dependencies) []definition.Resource {
	clusters := managedcluster.Options{Authorizer: d.Authorizer}
	var registrations managedclusterregistration.Options
	if r := d.Registration; r != nil {
		clusters.Registration, clusters.Decisions = r.Registrar, r.Decisions
		registrations.Registrar, registrations.Records = r.Registrar, r.Records
	}
	rows := []definition.Resource{
		managedcluster.Definition(clusters),
		managedclusterregistration.Definition(registrations),
		managedclusterset.Definition(),
		managedclustersetbinding.Definition(d.Authorizer),
		manifestwork.Definition(d.Works),
		clusterpermission.Definition(d.Permissions),
		clusternamespace.Definition(),
		managedserviceaccount.Definition(d.Placement, authenticationvalidation.Validator{
			MaximumValidity: d.MaximumTokenValidity, ReservedNames: d.ReservedAccountNames,
		}),
		managedserviceaccountbinding.Definition(managedserviceaccountbinding.Options{Authorizer: d.Authorizer, Bindings: d.AccountBindings}),
		clustermanagementaddon.Definition(),
		managedclusteraddon.Definition(),
		addondeploymentconfig.Definition(),
	}
	for i := range rows {
		d.Quotas.apply(&rows[i])
	}
	return rows
}

// Virtual is the table of what is served without being stored.
func Virtual(d SearchDependencies) []definition.Virtual {
	version := searchv1alpha1.SchemeGroupVersion
	question := func(name string, build func(search.Options) rest.Storage) definition.Virtual {
		return definition.Virtual{Name: name, Version: version, Storages: func() map[string]rest.Storage {
			return map[string]rest.Storage{name: build(search.Options{Engine: d.Engine, Scopes: d.Scopes, States: d.Reports.States})}
		}}
	}
	return []definition.Virtual{
		question("searches", search.NewSearches),
		question("searchcompletions", search.NewCompletions),
		question("searchschemas", search.NewSchemas),
		{Name: "fleetresources", Version: version, Storages: func() map[string]rest.Storage {
			return map[string]rest.Storage{"fleetresources": fleetresource.NewREST(fleetresource.Options{Engine: d.Engine, Scopes: d.Scopes})}
		}},
		{Name: "inventories", Version: version, Storages: func() map[string]rest.Storage {
			return map[string]rest.Storage{"inventories": inventory.NewREST(d.Reports, d.Scopes), "inventories/sync": inventory.NewSync(d.Reports)}
		}},
		{Name: "clusterstatuses", Version: proxyv1beta1.SchemeGroupVersion, Storages: func() map[string]rest.Storage {
			return map[string]rest.Storage{"clusterstatuses": clusterstatus.REST{}, "clusterstatuses/aggregator": clusterstatus.NewAggregator(d.Reports)}
		}},
	}
}

// optional are the versions that are served only if --runtime-config enables
// them. This one is the spelling of seed 002 for what another group has as well.
var optional = []schema.GroupVersion{proxyv1alpha1.SchemeGroupVersion}

// DefaultResourceConfig enables everything in the table but what is optional, and
// search where there is none; --runtime-config changes it.
func DefaultResourceConfig(search *SearchConfig) *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	for _, resource := range Resources(Dependencies{}) {
		config.EnableVersions(resource.Versions...)
	}
	for _, row := range Virtual(SearchDependencies{}) {
		if search != nil {
			config.EnableVersions(row.Version)
		}
	}
	config.DisableVersions(optional...)
	return config
}

// textSerializer does not offer protobuf, which our types do not have. Offered,
// it would be chosen for the many clients that prefer it and take JSON as well,
// the namespace controller among them, and then fail.
type textSerializer struct {
	runtime.NegotiatedSerializer
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s textSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
}

// apiGroups builds what serves the enabled part of the table, a group at a time.
func apiGroups(resources []definition.Resource, virtual []definition.Virtual, enabled *serverstorage.ResourceConfig, getter generic.RESTOptionsGetter) ([]*genericapiserver.APIGroupInfo, error) {
	storages := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, resource := range resources {
		versions := slices.DeleteFunc(slices.Clone(resource.Versions), func(version schema.GroupVersion) bool {
			return !enabled.ResourceEnabled(version.WithResource(resource.Name))
		})
		if len(versions) == 0 {
			continue
		}
		served, err := resource.Storages(scheme.Scheme, scheme.Codecs, getter)
		if err != nil {
			return nil, err
		}
		for _, version := range versions {
			if storages[version] == nil {
				storages[version] = map[string]rest.Storage{}
			}
			for path, storage := range served[version] {
				if storages[version][path] != nil {
					return nil, fmt.Errorf("%s of %s is in the table twice", path, version)
				}
				storages[version][path] = storage
			}
		}
	}

	for _, row := range virtual {
		if !enabled.ResourceEnabled(row.Version.WithResource(row.Name)) {
			continue
		}
		if storages[row.Version] == nil {
			storages[row.Version] = map[string]rest.Storage{}
		}
		maps.Copy(storages[row.Version], row.Storages())
	}

	var groups []*genericapiserver.APIGroupInfo
	for _, version := range scheme.Scheme.PrioritizedVersionsAllGroups() {
		storage, served := storages[version]
		if !served {
			continue
		}
		i := slices.IndexFunc(groups, func(g *genericapiserver.APIGroupInfo) bool {
			return g.PrioritizedVersions[0].Group == version.Group
		})
		if i < 0 {
			info := genericapiserver.NewDefaultAPIGroupInfo(version.Group, scheme.Scheme, scheme.ParameterCodec, scheme.Codecs)
			info.PrioritizedVersions = nil
			info.NegotiatedSerializer = textSerializer{info.NegotiatedSerializer}
			groups, i = append(groups, &info), len(groups)
		}
		groups[i].PrioritizedVersions = append(groups[i].PrioritizedVersions, version)
		groups[i].VersionedResourcesStorageMap[version.Version] = storage
	}
	return groups, nil
}
