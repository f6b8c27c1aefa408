package options

import (
	"context"
	"fmt"
	"net"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"google.golang.org/grpc"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"

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
	if err := recommended.EgressSelector.ApplyTo(&generic.Config); err != nil {
		return err
	}
	exporter, err := exporterOptions(generic.EgressSelector)
	if err != nil {
		return err
	}
	provider, err := tracing.NewProvider(context.Background(), config, tracing.Service{
		Name: serviceName, Instance: generic.APIServerID, Version: version.Short(),
	}, exporter...)
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

// exporterOptions make the exporter of spans use the egress selector of the control plane, if there is one.
func exporterOptions(selector *egressselector.EgressSelector) ([]otlptracegrpc.Option, error) {
	if selector == nil {
		return nil, nil
	}
	dial, err := selector.Lookup(egressselector.ControlPlane.AsNetworkContext())
	if err != nil || dial == nil {
		return nil, err
	}
	return []otlptracegrpc.Option{otlptracegrpc.WithDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return dial(ctx, "tcp", address)
	}))}, nil
}
