package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	componenttracing "k8s.io/component-base/tracing"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/agent/fence"
	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/agent/membership"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/keepalive"
	"open-cluster-management.io/hub-apiserver/pkg/tracing"
	"open-cluster-management.io/hub-apiserver/pkg/version"
)

// Config is the configuration of an agent.
type Config struct {
	Settings
	// Inventory selects the resources that are reported to the hub. Nil disables the report.
	Inventory *inventory.Settings
	// ManagedEndpoint is the URL of the API server that a new ManagedCluster contains.
	ManagedEndpoint string
	// Hub and Managed are the client configurations of the two clusters. Hub is nil if Registration provides it.
	// New fills in the ClusterName, clients, endpoint and clock of Registration.
	Hub, Managed *rest.Config
	Registration *membership.Config
	// ManagedCA reads the CA bundle of the managed API server. It defaults to the CA in Managed.
	ManagedCA func() ([]byte, error)
	// Tracer records the spans of ManifestWorks. Nil disables tracing.
	Tracer trace.TracerProvider
	// Clock determines the expiry of tokens. It defaults to the system clock.
	Clock clock.WithTicker
}

// Config turns the options into a configuration. It reads the kubeconfigs.
func (o *Options) Config() (*Config, error) {
	var hub *rest.Config
	register, err := o.Registration.Registration()
	if err != nil {
		return nil, err
	}
	if register == nil {
		if hub, err = clientcmd.BuildConfigFromFlags("", o.HubKubeconfig); err != nil {
			return nil, fmt.Errorf("--hub-kubeconfig: %w", err)
		}
		o.tune(hub)
		hub.Dial = (&net.Dialer{Timeout: keepalive.DialTimeout, KeepAlive: 30 * time.Second}).DialContext
	} else {
		register.Tune = o.tune
	}
	loadManaged := rest.InClusterConfig
	if o.Kubeconfig != "" {
		loadManaged = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", o.Kubeconfig) }
	}
	managed, err := loadManaged()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	settings, err := o.Inventory.Settings()
	if err != nil {
		return nil, err
	}
	var endpoint string
	if o.Kubeconfig != "" {
		// The in-cluster address is not reachable from outside the cluster.
		endpoint = managed.Host
	}
	o.tune(managed)
	return &Config{
		Settings: o.Settings, Inventory: settings, ManagedEndpoint: endpoint,
		Hub: hub, Managed: managed, ManagedCA: caOf(loadManaged), Registration: register,
	}, nil
}

// tune sets the fields that all clients of a cluster share.
func (o *Options) tune(config *rest.Config) {
	config.UserAgent = "open-cluster-management-agent/" + version.Short()
	config.QPS, config.Burst = o.QPS, o.Burst
	config.Wrap(keepalive.Repeat)
	// Warnings concern manifests, and the authors of manifests do not read this log.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if o.QPS > 0 {
		// All clients of a cluster share one budget.
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.QPS, o.Burst)
	}
}

// completedConfig is a Config with defaults and clients. Only complete creates one.
type completedConfig struct {
	*Config

	managed     versioned.Interface
	managedKube kubernetes.Interface
	dynamic     dynamic.Interface
	metadata    metadata.Interface
	discovery   discovery.DiscoveryInterface
}

// complete fills in defaults and creates the clients. It makes no request.
func (c *Config) complete() (*completedConfig, error) {
	completed := &completedConfig{Config: c}
	if (c.Hub == nil) == (c.Registration == nil) {
		return nil, errors.New("exactly one of Hub and Registration is required")
	}
	if c.ManagedCA == nil {
		c.ManagedCA = caOf(func() (*rest.Config, error) { return c.Managed, nil })
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Managed = c.traced(c.Managed)
	if r := c.Registration; r != nil {
		// The Secret that the fence reads must be writable while the fence is closed.
		var err error
		if r.Identity, err = kubernetes.NewForConfig(c.Managed); err != nil {
			return nil, fmt.Errorf("managed cluster client: %w", err)
		}
		r.Fence = fence.New(membership.ReadEpoch(r.Identity.CoreV1(), r.Namespace, r.SecretName))
		c.Managed.Wrap(r.Fence.Transport)
	}
	var errs [5]error
	completed.managed, errs[0] = versioned.NewForConfig(c.Managed)
	completed.managedKube, errs[1] = kubernetes.NewForConfig(c.Managed)
	completed.dynamic, errs[2] = dynamic.NewForConfig(c.Managed)
	completed.metadata, errs[3] = metadata.NewForConfig(c.Managed)
	completed.discovery, errs[4] = discovery.NewDiscoveryClientForConfig(c.Managed)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("managed cluster client: %w", err)
	}
	if r := c.Registration; r != nil {
		r.ClusterName, r.Managed, r.Dynamic, r.Clock = c.ClusterName, completed.managedKube, completed.dynamic, c.Clock
		r.Endpoint, r.CA = c.ManagedEndpoint, c.ManagedCA
	}
	return completed, nil
}

// traced returns a copy of a client configuration whose requests have spans.
func (c *Config) traced(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if c.Tracer != nil {
		config.Wrap(tracing.Transport(c.Tracer))
	}
	return config
}

// HubHash returns the hash that identifies the hub at a URL.
func HubHash(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:])
}

// caOf returns a function that reads the CA that a client trusts now. The CA is empty if the
// client trusts the CAs of its machine.
func caOf(load func() (*rest.Config, error)) func() ([]byte, error) {
	return func() ([]byte, error) {
		config, err := load()
		if err != nil {
			return nil, err
		}
		if len(config.CAData) > 0 || config.CAFile == "" {
			return config.CAData, nil
		}
		return os.ReadFile(config.CAFile)
	}
}

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
