package options

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver"
	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// storageFactory is the SimpleStorageFactory of the library with --etcd-servers-overrides, which that ignores.
type storageFactory struct {
	genericoptions.SimpleStorageFactory
	overrides map[schema.GroupResource][]string
}

// NewConfig returns the configuration of the store of a resource.
func (f *storageFactory) NewConfig(resource schema.GroupResource, example runtime.Object) (*storagebackend.ConfigForResource, error) {
	config, err := f.SimpleStorageFactory.NewConfig(resource, example)
	if servers, overridden := f.overrides[resource]; err == nil && overridden {
		config.Transport.ServerList = servers
	}
	return config, err
}

// Configs returns the configurations of all etcd clusters, for metrics.
func (f *storageFactory) Configs() []storagebackend.Config {
	out := serverstorage.Configs(f.StorageConfig)
	for _, servers := range f.overrides {
		config := f.StorageConfig
		config.Transport.ServerList = servers
		if !slices.ContainsFunc(out, func(other storagebackend.Config) bool { return slices.Equal(other.Transport.ServerList, servers) }) {
			out = append(out, config)
		}
	}
	return out
}

// applyEtcd configures the stores of all resources.
func (c Completed) applyEtcd(generic *genericapiserver.RecommendedConfig) error {
	factory := &storageFactory{overrides: map[schema.GroupResource][]string{}}
	overrides, err := genericoptions.ParseEtcdServersOverrides(c.Recommended.Etcd.EtcdServersOverrides)
	if err != nil {
		return err
	}
	for _, override := range overrides {
		factory.overrides[override.GroupResource] = override.Servers
	}
	all := c.Recommended.Etcd.StorageConfig.Transport.ServerList
	for _, override := range overrides {
		all = slices.Concat(all, override.Servers)
	}
	if etcd.Redundant(all) && c.Recommended.Etcd.StorageConfig.Transport.EgressLookup == nil {
		c.EtcdFailover = etcd.NewFailover()
		// The health checks of the library use these options too.
		c.Recommended.Etcd.StorageConfig.Transport.EgressLookup = c.EtcdFailover.Lookup
	}
	factory.StorageConfig = c.Recommended.Etcd.StorageConfig
	factory.StorageConfig.StorageObjectCountTracker = generic.StorageObjectCountTracker
	return c.Recommended.Etcd.ApplyWithStorageFactoryTo(factory, &generic.Config)
}

// validateOverrides returns the errors of --etcd-servers-overrides. A name that the server does not store would
// have no effect.
func (c Completed) validateOverrides() []error {
	overrides, err := genericoptions.ParseEtcdServersOverrides(c.Recommended.Etcd.EtcdServersOverrides)
	if err != nil {
		return nil // reported by the options of the library
	}
	if len(overrides) > 0 && c.Embedded() {
		return []error{fmt.Errorf("--etcd-servers-overrides requires --etcd-servers")}
	}
	stored := map[schema.GroupResource]bool{}
	for _, row := range apiserver.Resources(apiserver.Dependencies{}) {
		for _, name := range row.InStorage() {
			stored[name] = true
		}
	}
	var errs []error
	for _, override := range overrides {
		if !stored[override.GroupResource] {
			errs = append(errs, fmt.Errorf("--etcd-servers-overrides: %s/%s: Not found: the server stores no such resource",
				override.GroupResource.Group, override.GroupResource.Resource))
		}
	}
	return errs
}

// serviceName is the name of the service in spans. The library would use the name of kube-apiserver.
const serviceName = "hub-apiserver"

// applyRecommended applies the recommended options. It applies the tracing options first, because the clients of
// etcd and of the hub use the provider.
func (c Completed) applyRecommended(generic *genericapiserver.RecommendedConfig) error {
	recommended := *c.Recommended
	recommended.Traces, recommended.Etcd = nil, nil
	if c.Recommended.Traces.ConfigFile == "" {
		if err := c.applyEtcd(generic); err != nil {
			return err
		}
		return recommended.ApplyTo(generic)
	}
	config, err := tracing.ReadConfiguration(c.Recommended.Traces.ConfigFile)
	if err != nil {
		return fmt.Errorf("--tracing-config-file: %w", err)
	}
	provider, err := tracing.NewProvider(context.Background(), config, tracing.Service{
		Name: serviceName, Instance: generic.APIServerID, Version: version.Short(),
	})
	if err != nil {
		return fmt.Errorf("--tracing-config-file: %w", err)
	}
	generic.TracerProvider = provider
	c.Recommended.Etcd.StorageConfig.Transport.TracerProvider = provider
	if err := c.applyEtcd(generic); err != nil {
		return err
	}
	if err := recommended.ApplyTo(generic); err != nil {
		return err
	}
	// The deliveries of ClusterPermissions are requests of the server to itself.
	generic.LoopbackClientConfig.Wrap(tracing.Transport(provider))
	return nil
}
