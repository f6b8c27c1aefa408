package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/version"

	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
)

// Config is what an agent needs to run.
type Config struct {
	// ClusterName is the name of the managed cluster on the hub.
	ClusterName string
	// AgentID is the identity of the agent; the hash of the hub's URL if empty.
	AgentID string
	// HealthBindAddress is where health checks and metrics are served; empty or "0" disables that.
	HealthBindAddress string
	// Workers is how many ManifestWorks are handled at the same time.
	Workers int
	// EvictionGracePeriod is how long the objects of a work stay that the hub
	// lost without the agent having let it go.
	EvictionGracePeriod time.Duration
	// Hub and Managed are how to reach the two clusters.
	Hub, Managed *rest.Config
}

// Config turns the options into a configuration. It reads the kubeconfigs.
func (o *Options) Config() (*Config, error) {
	hub, err := clientcmd.BuildConfigFromFlags("", o.HubKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--hub-kubeconfig: %w", err)
	}
	managed, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	for _, config := range []*rest.Config{hub, managed} {
		config.UserAgent = "open-cluster-management-agent/" + version.Get().GitVersion
		config.QPS, config.Burst = o.QPS, o.Burst
		// Warnings are about manifests, whose authors do not read this log.
		config.WarningHandlerWithContext = rest.NoWarnings{}
		if o.QPS > 0 {
			// One budget for all clients of a cluster.
			config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(o.QPS, o.Burst)
		}
	}
	return &Config{
		ClusterName: o.ClusterName, AgentID: o.AgentID, HealthBindAddress: o.HealthBindAddress,
		Workers: o.Workers, EvictionGracePeriod: o.EvictionGracePeriod, Hub: hub, Managed: managed,
	}, nil
}

type completedConfig struct {
	*Config
	hubHash string

	hub, managed versioned.Interface
	dynamic      dynamic.Interface
	metadata     metadata.Interface
	discovery    discovery.DiscoveryInterface
}

// CompletedConfig is a Config with defaults and clients. Only Complete makes one.
type CompletedConfig struct {
	*completedConfig
}

// Complete fills in defaults and makes the clients. It makes no request.
func (c *Config) Complete() (CompletedConfig, error) {
	completed := &completedConfig{Config: c, hubHash: HubHash(c.Hub.Host)}
	if c.AgentID == "" {
		c.AgentID = completed.hubHash
	}
	var err error
	if completed.hub, err = versioned.NewForConfig(c.Hub); err != nil {
		return CompletedConfig{}, fmt.Errorf("hub client: %w", err)
	}
	if completed.managed, err = versioned.NewForConfig(c.Managed); err != nil {
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
	return CompletedConfig{completed}, nil
}

// HubHash returns the hash that identifies the hub at a URL.
func HubHash(url string) string {
	sum := sha256.Sum256([]byte(url))
	return hex.EncodeToString(sum[:])
}
