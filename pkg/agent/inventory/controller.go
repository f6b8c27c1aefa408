package inventory

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// Config configures a Controller. All fields are required.
type Config struct {
	ClusterName string
	// Settings select the resources and the properties to report.
	Settings *Settings
	Hub      *rest.Config
	// The others are clients of the managed cluster. Authorization finds out which authorizers it has.
	Metadata      metadata.Interface
	Dynamic       dynamic.Interface
	Discovery     discovery.DiscoveryInterface
	Authorization authorizationclient.AuthorizationV1Interface
	// Timing is DefaultTiming, except in tests.
	Timing Timing
}

// Controller reports the resources of one cluster.
type Controller struct {
	cluster    string
	collection *collection
	reporter   *reporter
}

// New returns a controller. It makes no request.
func New(config Config) (*Controller, error) {
	hub, err := newHub(config.Hub, config.ClusterName)
	if err != nil {
		return nil, err
	}
	state := newState()
	access := &accessSources{
		settings: config.Settings, authorization: config.Authorization, changed: state.signal, collectors: map[schema.GroupResource]*collector{},
	}
	state.access.reports(config.ClusterName, access.report)
	return &Controller{
		cluster: config.ClusterName,
		collection: &collection{
			cluster: config.ClusterName, settings: config.Settings,
			discovery: discovery.ToDiscoveryInterfaceWithContext(config.Discovery),
			clients:   clients{config.Metadata, config.Dynamic, make(chan struct{}, maxPages)},
			state:     state, access: access, timing: config.Timing,
			noticed:    make(chan struct{}, 1),
			collectors: map[schema.GroupResource]*collector{},
		},
		reporter: newReporter(state, hub, config.Timing),
	}, nil
}

// Synced reports whether all resources of the cluster have been reported to the hub.
func (c *Controller) Synced() bool { return c.reporter.synced.Load() }

// Unserved reports whether the hub accepts no inventory from this agent, because the hub does not
// serve inventories or denies access.
func (c *Controller) Unserved() bool { return c.reporter.unserved.Load() }

// Backlog returns the numbers of objects and edges that the Controller knows, and the numbers of
// changed and deleted objects that are not reported yet.
func (c *Controller) Backlog() Backlog { return c.reporter.state.backlog() }

// Backlog contains the numbers of known objects and edges, and of changes that are not reported
// yet.
type Backlog struct{ Objects, Edges, Changed, Deleted int }

// Run reports until ctx ends, and returns after all its goroutines have stopped.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	if !c.reporter.greet(ctx) {
		return nil
	}
	logger.Info("Reporting the inventory", "cluster", c.cluster)
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.collection.run(ctx) })
	running.Go(func() { c.collection.access.review(ctx) })
	begin := time.Now()
	for !c.collection.settled() {
		if !reconcile.Pause(ctx, settleInterval, nil) {
			return nil
		}
	}
	logger.V(2).Info("The inventory is known", "resources", c.Backlog().Objects, "took", time.Since(begin))
	c.reporter.run(ctx)
	return nil
}

// settleInterval is the interval between checks until all objects are known.
const settleInterval = 50 * time.Millisecond
