package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/agent/executor"
	"open-cluster-management.io/hub-apiserver/pkg/agent/inventory"
	"open-cluster-management.io/hub-apiserver/pkg/agent/registration"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

// Config is what an agent needs to run.
type Config struct {
	// ClusterName is the name of the managed cluster on the hub.
	ClusterName string
	// AgentID is the identity of the agent; the hash of the hub's URL if empty.
	AgentID string
	// HealthBindAddress is where health checks and metrics are served; empty or "0" disables that.
	HealthBindAddress string
	// Workers is how many ManifestWorks are handled at the same time, WorkersPerTenant
	// how many of one tenant, and how many ManagedServiceAccounts; Workers if zero.
	Workers, WorkersPerTenant int
	// PriorityWorkers is how many ManifestWorks are handled in addition that are deleted,
	// revoked or of ClusterPermissions; 2 if zero.
	PriorityWorkers int
	// NoWorks leaves out the ManifestWorks of the cluster.
	NoWorks bool
	// NoServiceAccounts leaves the ManagedServiceAccounts of the cluster to another agent.
	NoServiceAccounts bool
	// EvictionGracePeriod is how long the objects of a work stay that the hub
	// lost without the agent having let it go.
	EvictionGracePeriod time.Duration
	// ExecutorMode is how works act that name an executor; executor.Impersonate if empty.
	ExecutorMode executor.Mode
	// FeedbackJSONPaths are the parts of applied objects that works may have
	// reported, as .status; all if empty.
	FeedbackJSONPaths []string
	// ServiceAccountNamespace is where the ServiceAccounts of
	// ManagedServiceAccounts live; DefaultServiceAccountNamespace if empty.
	ServiceAccountNamespace string
	// TokenVerifyInterval is how often a reported token is checked without a
	// reason; DefaultTokenVerifyInterval if zero.
	TokenVerifyInterval time.Duration
	// Inventory says which resources of the managed cluster are reported to the hub;
	// none if nil.
	Inventory *inventory.Settings
	// ManagedEndpoint is the URL of the managed cluster's API server that is reported
	// with them; none if empty.
	ManagedEndpoint string
	// Hub and Managed are how to reach the two clusters. Hub is nil if there is a Registration.
	Hub, Managed *rest.Config
	// Registration makes the cluster a member of its hub, and so says how to reach the hub;
	// nil if Hub does. Its ClusterName, clients, endpoint and clock are filled in.
	Registration *registration.Config
	// ManagedCA reads what verifies the managed cluster's API server; what
	// Managed says if nil.
	ManagedCA func() ([]byte, error)
	// Clock is what tokens expire by; that of the machine if nil.
	Clock clock.WithTicker
}

// Config turns the options into a configuration. It reads the kubeconfigs.
func (o *Options) Config() (*Config, error) {
	var hub *rest.Config
	register, err := o.Registration.Config()
	if err != nil {
		return nil, err
	}
	if register == nil {
		if hub, err = clientcmd.BuildConfigFromFlags("", o.HubKubeconfig); err != nil {
			return nil, fmt.Errorf("--hub-kubeconfig: %w", err)
		}
		o.tune(hub)
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
		// From within the cluster it is an address that means nothing elsewhere.
		endpoint = managed.Host
	}
	o.tune(managed)
	return &Config{
		ClusterName: o.ClusterName, AgentID: o.AgentID, HealthBindAddress: o.HealthBindAddress,
		Workers: o.Workers, WorkersPerTenant: o.WorkersPerTenant, PriorityWorkers: o.PriorityWorkers, NoWorks: !o.Works, NoServiceAccounts: !o.ServiceAccounts, EvictionGracePeriod: o.EvictionGracePeriod,
		ExecutorMode: executor.Mode(o.ExecutorMode), FeedbackJSONPaths: o.FeedbackJSONPaths,
		ServiceAccountNamespace: o.ServiceAccountNamespace, TokenVerifyInterval: o.TokenVerifyInterval,
		Inventory: settings, ManagedEndpoint: endpoint,
		Hub: hub, Managed: managed, ManagedCA: caOf(loadManaged), Registration: register,
	}, nil
}

// tune sets what is common to all clients of a cluster.
func (o *Options) tune(config *rest.Config) {
	config.UserAgent = "open-cluster-management-agent/" + version.Get().GitVersion
	config.QPS, config.Burst = o.QPS, o.Burst
	// Warnings are about manifests, whose authors do not read this log.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if o.QPS > 0 {
		// One budget for all clients of a cluster, in which tenants take turns.
		config.RateLimiter = fair.NewLimiter(o.QPS, o.Burst)
	}
}

type completedConfig struct {
	*Config

	managed     versioned.Interface
	managedKube kubernetes.Interface
	dynamic     dynamic.Interface
	metadata    metadata.Interface
	discovery   discovery.DiscoveryInterface
}

// CompletedConfig is a Config with defaults and clients. Only Complete makes one.
type CompletedConfig struct {
	*completedConfig
}

// Complete fills in defaults and makes the clients. It makes no request.
func (c *Config) Complete() (CompletedConfig, error) {
	completed := &completedConfig{Config: c}
	if (c.Hub == nil) == (c.Registration == nil) {
		return CompletedConfig{}, errors.New("exactly one of a hub and a registration is needed")
	}
	if c.ServiceAccountNamespace == "" {
		c.ServiceAccountNamespace = DefaultServiceAccountNamespace
	}
	if c.TokenVerifyInterval == 0 {
		c.TokenVerifyInterval = DefaultTokenVerifyInterval
	}
	if c.ManagedCA == nil {
		c.ManagedCA = caOf(func() (*rest.Config, error) { return c.Managed, nil })
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.WorkersPerTenant == 0 {
		c.WorkersPerTenant = c.Workers
	}
	c.Managed = watched(c.Managed)
	var err error
	if completed.managed, err = versioned.NewForConfig(c.Managed); err != nil {
		return CompletedConfig{}, fmt.Errorf("managed cluster client: %w", err)
	}
	if completed.managedKube, err = kubernetes.NewForConfig(c.Managed); err != nil {
		return CompletedConfig{}, fmt.Errorf("managed cluster client: %w", err)
	}
	if completed.dynamic, err = dynamic.NewForConfig(c.Managed); err != nil {
		return CompletedConfig{}, fmt.Errorf("managed cluster client: %w", err)
	}
	if completed.metadata, err = metadata.NewForConfig(c.Managed); err != nil {
		return CompletedConfig{}, fmt.Errorf("managed cluster client: %w", err)
	}
	if completed.discovery, err = discovery.NewDiscoveryClientForConfig(c.Managed); err != nil {
		return CompletedConfig{}, fmt.Errorf("managed cluster client: %w", err)
	}
	if r := c.Registration; r != nil {
		r.ClusterName, r.Managed, r.Dynamic, r.Clock = c.ClusterName, completed.managedKube, completed.dynamic, c.Clock
		r.Endpoint, r.CA = c.ManagedEndpoint, c.ManagedCA
	}
	return CompletedConfig{completed}, nil
}

// watched returns a configuration whose requests show that a worker is not stuck.
func watched(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(fair.Transport)
	return config
}

// HubHash returns the hash that identifies the hub at a URL.
func HubHash(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:])
}
