package agent

import (
	"context"
	"fmt"

	componenttracing "k8s.io/component-base/tracing"

	"open-cluster-management.io/hub-apiserver/pkg/tracing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// serviceName is the name of the service in spans.
const serviceName = "hub-agent"

// tracer returns the provider of spans, or nil if tracing is disabled. The caller shuts it down.
func (o *Options) tracer(ctx context.Context, config *Config) (componenttracing.TracerProvider, error) {
	if o.TracingConfigFile == "" {
		return nil, nil
	}
	traces, err := tracing.ReadConfiguration(o.TracingConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	provider, err := tracing.NewProvider(ctx, traces, tracing.Service{
		Name: serviceName, Instance: config.ClusterName, Version: version.Short(),
	})
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	return provider, nil
}
