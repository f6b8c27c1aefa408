package options

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"open-cluster-management.io/hub-apiserver/pkg/apiserver/etcd"
	"open-cluster-management.io/hub-apiserver/pkg/servingcert"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// serviceName is the name of the service in spans. The library would use the name of kube-apiserver.
const serviceName = "hub-apiserver"

// applyServing applies the options of the secure port. It creates the certificate of the loopback client as the library does,
// but without RSA keys, which delay the start by up to a second.
func (c Completed) applyServing(generic *genericapiserver.RecommendedConfig) error {
	serving, name := c.Recommended.SecureServing, genericapiserver.LoopbackClientServerNameOverride
	cert, key, err := servingcert.SelfSigned(name)
	if err != nil {
		return err
	}
	loopback, err := dynamiccertificates.NewStaticSNICertKeyContent("loopback", cert, key, name)
	if err != nil {
		return err
	}
	if c.ServingCertificate.Secret != "" {
		// Probes see this certificate until the server has read the Secret.
		serving.ServerCert.GeneratedCert = loopback
	} else if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, nil); err != nil {
		return err
	}
	if err := serving.SecureServingOptions.ApplyTo(&generic.SecureServing); err != nil {
		return err
	}
	// The first certificate of a name is served.
	generic.SecureServing.SNICerts = slices.Insert(generic.SecureServing.SNICerts, 0, loopback)
	generic.LoopbackClientConfig, err = generic.SecureServing.NewLoopbackClientConfig(uuid.NewString(), cert)
	return err
}

// applyRecommended applies the recommended options. overrides are the etcd servers of single resources. It applies the tracing options first, because the clients of
// etcd and of the hub use the provider.
func (c Completed) applyRecommended(generic *genericapiserver.RecommendedConfig, overrides map[schema.GroupResource][]string) error {
	recommended, transport := *c.Recommended, &c.Recommended.Etcd.StorageConfig.Transport
	recommended.Traces, recommended.SecureServing = nil, nil // applied below, and by applyServing
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
