package inventory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Config is what a Controller needs. All fields but APIEndpoint are required.
type Config struct {
	// ClusterName is the name of the managed cluster on the hub.
	ClusterName string
	// APIEndpoint is the URL of the cluster's API server, for others to see; unknown
	// if empty.
	APIEndpoint string
	// Settings say what is reported.
	Settings *Settings
	// Hub is how to reach the hub.
	Hub *rest.Config
	// Metadata, Dynamic and Discovery read the managed cluster.
	Metadata  metadata.Interface
	Dynamic   dynamic.Interface
	Discovery discovery.DiscoveryInterface
}

// Controller reports the resources of one cluster.
type Controller struct {
	cluster    string
	collection *collection
	reporter   *reporter
	timing     timing

	synced, unserved atomic.Bool
}

// New returns a controller. It makes no request. It returns an error if the
// configuration is not complete.
func New(config Config) (*Controller, error) { return newController(config, defaultTiming) }

func newController(config Config, timing timing) (*Controller, error) {
	if config.Settings == nil {
		return nil, errors.New("inventory: the settings are missing")
	}
	hub, err := newHub(config.Hub, config.ClusterName)
	if err != nil {
		return nil, err
	}
	state := newState()
	row := &clusterRow{cluster: config.ClusterName, endpoint: config.APIEndpoint}
	c := &Controller{
		cluster: config.ClusterName,
		timing:  timing,
		collection: &collection{
			cluster: config.ClusterName, settings: config.Settings,
			discovery: discovery.ToDiscoveryInterfaceWithContext(config.Discovery),
			clients:   clients{config.Metadata, config.Dynamic},
			state:     state, row: row, timing: timing,
			lists: make(chan struct{}, maxLists), noticed: make(chan struct{}, 1),
			collectors: map[schema.GroupResource]*collector{},
		},
		reporter: newReporter(state, row, hub, timing),
	}
	c.reporter.accepted = c.accepted
	c.reporter.absent = c.unserved.Store
	return c, nil
}

// Synced reports whether the hub has been told all that the cluster has.
func (c *Controller) Synced() bool { return c.synced.Load() }

// Unserved reports whether the hub takes no inventory from this agent: it does not
// serve it, or does not allow it.
func (c *Controller) Unserved() bool { return c.unserved.Load() }

func (c *Controller) accepted(b *batch) {
	if b.full {
		c.synced.Store(true)
	}
	objects.Set(float64(b.resources))
	edges.Set(float64(b.edges))
}

// Run works until ctx ends, and returns when all it started has ended.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if !c.reporter.greet(ctx) {
		return nil
	}
	logger.Info("Reporting the inventory", "cluster", c.cluster)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.collection.run(ctx) })
	begin := time.Now()
	for !c.collection.settled() {
		if !pause(ctx, settleInterval, nil) {
			return nil
		}
	}
	resources, relations := c.reporter.state.size()
	logger.V(2).Info("The inventory is known", "resources", resources, "edges", relations, "took", time.Since(begin))
	c.reporter.run(ctx)
	return nil
}

// settleInterval is how often it is looked whether all objects are known.
const settleInterval = 50 * time.Millisecond
