package options

import (
	"context"
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"open-cluster-management.io/hub-apiserver/pkg/tracing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

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
