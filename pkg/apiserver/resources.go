package apiserver

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"

	accessv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/access/v1alpha1"
	authenticationvalidation "open-cluster-management.io/hub-apiserver/pkg/apis/authentication/validation"
	clusterviewv1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1"
	clusterviewv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/clusterview/v1alpha1"
	migrationv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/migration/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1alpha1"
	proxyv1beta1 "open-cluster-management.io/hub-apiserver/pkg/apis/proxy/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/apis/scheme"
	searchv1alpha1 "open-cluster-management.io/hub-apiserver/pkg/apis/search/v1alpha1"
	"open-cluster-management.io/hub-apiserver/pkg/console"
	"open-cluster-management.io/hub-apiserver/pkg/registration"
	"open-cluster-management.io/hub-apiserver/pkg/registry/access/fleetreview"
	"open-cluster-management.io/hub-apiserver/pkg/registry/addon/addondeploymentconfig"
	"open-cluster-management.io/hub-apiserver/pkg/registry/addon/clustermanagementaddon"
	"open-cluster-management.io/hub-apiserver/pkg/registry/addon/managedclusteraddon"
	"open-cluster-management.io/hub-apiserver/pkg/registry/authentication/managedserviceaccount"
	"open-cluster-management.io/hub-apiserver/pkg/registry/authentication/managedserviceaccountbinding"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedcluster"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedclusterset"
	"open-cluster-management.io/hub-apiserver/pkg/registry/cluster/managedclustersetbinding"
	"open-cluster-management.io/hub-apiserver/pkg/registry/definition"
	"open-cluster-management.io/hub-apiserver/pkg/registry/migration/imports"
	"open-cluster-management.io/hub-apiserver/pkg/registry/proxy/clusterstatus"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusternamespace"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/clusterpermission"
	"open-cluster-management.io/hub-apiserver/pkg/registry/rbac/multiclusterroleassignment"
	managedclusterregistration "open-cluster-management.io/hub-apiserver/pkg/registry/register/managedclusterregistration"
	consolestorage "open-cluster-management.io/hub-apiserver/pkg/registry/search/console"
	"open-cluster-management.io/hub-apiserver/pkg/registry/search/fleetresource"
	"open-cluster-management.io/hub-apiserver/pkg/registry/search/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/registry/search/search"
	"open-cluster-management.io/hub-apiserver/pkg/registry/work/manifestwork"
	searchengine "open-cluster-management.io/hub-apiserver/pkg/search"
	"open-cluster-management.io/hub-apiserver/pkg/search/ingest"
	"open-cluster-management.io/hub-apiserver/pkg/search/watch"
)

// Dependencies are the dependencies of resources in addition to their storage.
type Dependencies struct {
	Permissions clusterpermission.Options
	Assignments multiclusterroleassignment.Options
	// Authorizer decides about permissions in addition to the permission for the request itself.
	Authorizer authorizer.Authorizer
	Works      manifestwork.Options
	// AccountBindings receive their store. They are nil for a server that does not serve them.
	AccountBindings *managedserviceaccountbinding.Bindings
	Placement       managedserviceaccount.Placement
	Accounts        authenticationvalidation.Validator
	// Registration is nil for a server that does not register clusters.
	Registration *RegistrationDependencies
	// Restore is the ID of the last restore of the server's data, or an empty string.
	Restore string
	// Quotas change the default limits of the rows. They may be nil.
	Quotas *Quotas
}

// RegistrationDependencies connect ManagedClusters and their registrations.
type RegistrationDependencies struct {
	Registrar *registration.Registrar
	// Records and Decisions of the Registrar receive their stores.
	Records   *managedclusterregistration.Records
	Decisions *managedcluster.Decisions
}

// Resources returns the table of all stored resources.
func Resources(d Dependencies) []definition.Resource {
	clusters := managedcluster.Options{Authorizer: d.Authorizer, Restore: d.Restore}
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
		multiclusterroleassignment.Definition(d.Assignments),
		clusternamespace.Definition(),
		managedserviceaccount.Definition(d.Placement, d.Accounts),
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

// VirtualDependencies are the dependencies of resources that are served but not stored.
type VirtualDependencies struct {
	Engine  searchengine.Engine
	Scopes  searchengine.Scopes
	Reports *ingest.Handler
	// WatchMemory limits the memory of watches. If it is nil, there is no limit.
	WatchMemory *watch.Memory
	Console     console.Files
	Access      fleetreview.Options
	Views       Views
	Imports     *imports.Stores
}

// Views are the storages of the group clusterview.open-cluster-management.io.
type Views struct {
	ManagedClusters, ManagedClusterSets, UserPermissions, KubeVirtProjects rest.Storage
}

// Virtual returns the table of all resources that are served but not stored.
func Virtual(d VirtualDependencies) []definition.Virtual {
	questions := func() search.Options {
		return search.Options{Engine: d.Engine, Scopes: d.Scopes, States: d.Reports.States}
	}
	version := searchv1alpha1.SchemeGroupVersion
	return []definition.Virtual{
		virtual(version, "searches", func() rest.Storage { return search.NewSearches(questions()) }),
		virtual(version, "searchcompletions", func() rest.Storage { return search.NewCompletions(questions()) }),
		virtual(version, "searchschemas", func() rest.Storage { return search.NewSchemas(questions()) }),
		virtual(version, "fleetresources", func() rest.Storage {
			return fleetresource.NewREST(fleetresource.Options{Engine: d.Engine, Scopes: d.Scopes, WatchMemory: d.WatchMemory})
		}),
		{Name: "inventories", Version: version, Storages: func() map[string]rest.Storage {
			return map[string]rest.Storage{"inventories": inventory.NewREST(d.Reports, d.Scopes), "inventories/sync": inventory.NewSync(d.Reports)}
		}},
		virtual(version, console.Resource, func() rest.Storage { return consolestorage.NewREST(d.Console) }),
		{Name: "clusterstatuses", Version: proxyv1beta1.SchemeGroupVersion, Storages: func() map[string]rest.Storage {
			return map[string]rest.Storage{"clusterstatuses": clusterstatus.NewREST(), "clusterstatuses/aggregator": clusterstatus.NewAggregator(d.Reports)}
		}},
		virtual(accessv1alpha1.SchemeGroupVersion, "selffleetaccessreviews", func() rest.Storage { return fleetreview.NewSelf(d.Access) }),
		virtual(accessv1alpha1.SchemeGroupVersion, "fleetaccessreviews", func() rest.Storage { return fleetreview.NewAccess(d.Access) }),
		virtual(accessv1alpha1.SchemeGroupVersion, "fleetsubjectreviews", func() rest.Storage { return fleetreview.NewSubjects(d.Access) }),
		virtual(clusterviewv1.SchemeGroupVersion, "managedclusters", func() rest.Storage { return d.Views.ManagedClusters }),
		virtual(clusterviewv1.SchemeGroupVersion, "kubevirtprojects", func() rest.Storage { return d.Views.KubeVirtProjects }),
		virtual(clusterviewv1alpha1.SchemeGroupVersion, "managedclustersets", func() rest.Storage { return d.Views.ManagedClusterSets }),
		virtual(clusterviewv1alpha1.SchemeGroupVersion, "userpermissions", func() rest.Storage { return d.Views.UserPermissions }),
		importRow(d.Imports),
	}
}

func importRow(stores *imports.Stores) definition.Virtual {
	return virtual(migrationv1alpha1.SchemeGroupVersion, "imports", func() rest.Storage { return imports.NewREST(stores) })
}

// virtual returns the row of a resource without subresources.
func virtual(version schema.GroupVersion, name string, build func() rest.Storage) definition.Virtual {
	return definition.Virtual{Name: name, Version: version, Storages: func() map[string]rest.Storage {
		return map[string]rest.Storage{name: build()}
	}}
}

// DefaultResourceConfig enables all versions in the tables except proxy/v1alpha1, another name for authentication/v1beta1.
// If search is nil, it does not enable the versions of search, of access, which depends on its reports, and of the views of
// callers, which have the same permissions. --runtime-config changes it.
func DefaultResourceConfig(search *SearchConfig) *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	for _, resource := range Resources(Dependencies{}) {
		config.EnableVersions(resource.Versions...)
	}
	config.EnableVersions(migrationv1alpha1.SchemeGroupVersion)
	if search != nil {
		for _, row := range Virtual(VirtualDependencies{}) {
			config.EnableVersions(row.Version)
		}
	}
	config.DisableVersions(proxyv1alpha1.SchemeGroupVersion)
	return config
}

// textSerializer does not offer protobuf, because the types of this server do not support it. Many
// clients, such as the namespace controller, accept protobuf and JSON, and would fail if the server
// chose protobuf.
type textSerializer struct {
	runtime.NegotiatedSerializer
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s textSerializer) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
}

// apiGroups builds the API groups of the enabled rows.
func apiGroups(resources []definition.Resource, virtual []definition.Virtual, enabled *serverstorage.ResourceConfig, getter generic.RESTOptionsGetter) ([]*genericapiserver.APIGroupInfo, error) {
	storages := map[schema.GroupVersion]map[string]rest.Storage{}
	serve := func(version schema.GroupVersion, served map[string]rest.Storage) {
		if storages[version] == nil {
			storages[version] = map[string]rest.Storage{}
		}
		maps.Copy(storages[version], served)
	}
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
			serve(version, served[version])
		}
	}
	for _, row := range virtual {
		if enabled.ResourceEnabled(row.Version.WithResource(row.Name)) {
			serve(row.Version, row.Storages())
		}
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
