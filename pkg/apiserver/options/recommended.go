package options

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// serviceName is the name of the service in spans. The library would use the name of kube-apiserver.
const serviceName = "hub-apiserver"

// applyRecommended applies the recommended options. overrides are the etcd servers of single resources. It applies the tracing options first, because the clients of
// etcd and of the hub use the provider.
func (c Completed) applyRecommended(generic *genericapiserver.RecommendedConfig, overrides map[schema.GroupResource][]string) error {
	recommended, transport := *c.Recommended, &c.Recommended.Etcd.StorageConfig.Transport
	recommended.Traces = nil
	members := slices.Concat(transport.ServerList, slices.Concat(slices.Collect(maps.Values(overrides))...))
	if etcd.Redundant(members) && transport.EgressLookup == nil {
		c.EtcdFailover = etcd.NewFailover()
		// The health checks of the library use these options too.
		transport.EgressLookup = c.EtcdFailover.Lookup
	}
	if c.Recommended.Traces.ConfigFile == "" {
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
	generic.TracerProvider, transport.TracerProvider = provider, provider
	if err := recommended.ApplyTo(generic); err != nil {
		return err
	}
	// The deliveries of ClusterPermissions are requests of the server to itself.
	generic.LoopbackClientConfig.Wrap(tracing.Transport(provider))
	return nil
}
