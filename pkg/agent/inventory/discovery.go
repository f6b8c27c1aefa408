package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

// sources are the resources whose objects determine which resources exist.
var sources = sets.New(
	schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"},
)

// afterChange is the schedule of discovery after a change of a source. Discovery repeats, because a
// new resource appears some time after its definition.
var afterChange = wait.Backoff{Duration: 300 * time.Millisecond, Factor: 2.5, Jitter: 0.2, Steps: 4}

// collection keeps a collector for each resource of the cluster.
type collection struct {
	cluster   string
	settings  *Settings
	discovery discovery.DiscoveryInterfaceWithContext
	clients   clients
	state     *state
	access    *accessSources
	timing    Timing

	noticed chan struct{}

	mu         sync.Mutex
	collectors map[schema.GroupResource]*collector
	// first is the time of the first successful discovery. complete is true if all groups were
	// discovered.
	first    time.Time
	complete bool
}

// run discovers resources and collects their objects until ctx ends. It returns after all
// collectors have ended.
func (f *collection) run(ctx context.Context) {
	defer f.stop()
	logger := klog.FromContext(ctx)
	failures, changes := backoff(f.timing.Retry, time.Minute), wait.Backoff{}
	for ctx.Err() == nil {
		delay := wait.Jitter(f.timing.Discover, 0.2)
		if err := f.discover(ctx); err != nil {
			delay = min(failures.Step(), delay)
			logger.V(2).Info("Not all resources are found", "err", err, "retryAfter", delay)
		} else {
			failures = backoff(f.timing.Retry, time.Minute)
		}
		if changes.Steps > 0 {
			delay = min(changes.Step(), delay)
		}
		timer := time.NewTimer(delay)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-f.noticed:
			changes = afterChange
			reconcile.Pause(ctx, changes.Step(), nil)
		}
		timer.Stop()
	}
}

// discover starts collectors for new resources and stops the collectors of deleted ones.
func (f *collection) discover(ctx context.Context) error {
	lookCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	found, failed, err := f.find(lookCtx)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first.IsZero() {
		f.first = time.Now()
	}
	f.complete = len(failed) == 0
	for gr, c := range f.collectors {
		r, ok := found[gr]
		if ok && *r == *c.resource || !ok && failed.Has(gr.Group) {
			continue
		}
		c.stop()
		<-c.done
		delete(f.collectors, gr)
		f.access.set(gr, nil)
		if !ok {
			f.state.replace(gr, nil)
		}
	}
	var errs []error
	for gr, r := range found {
		if f.collectors[gr] == nil {
			errs = append(errs, f.collect(ctx, r))
		}
	}
	if len(failed) > 0 {
		errs = append(errs, fmt.Errorf("groups that do not answer: %v", sets.List(failed)))
	}
	return errors.Join(errs...)
}

func (f *collection) collect(ctx context.Context, r *resource) error {
	extractor, err := newExtractor(f.cluster, r, f.settings)
	if err != nil {
		return err
	}
	c := &collector{
		resource: r, extractor: extractor, state: f.state, clients: f.clients, patience: f.timing.Patience, noticed: func() {},
	}
	if sources.Has(r.GroupResource()) {
		c.noticed = f.notice
	}
	f.collectors[r.GroupResource()] = c
	f.access.set(r.GroupResource(), c)
	c.start(ctx)
	return nil
}

func (f *collection) notice() { reconcile.Signal(f.noticed) }

func (f *collection) find(ctx context.Context) (map[schema.GroupResource]*resource, sets.Set[string], error) {
	lists, err := discovery.ServerPreferredResourcesWithContext(ctx, f.discovery)
	failed := sets.New[string]()
	var partial *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &partial) {
		for gv := range partial.Groups {
			failed.Insert(gv.Group)
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("discovery: %w", err)
	}
	found := map[schema.GroupResource]*resource{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, fmt.Errorf("discovery: %w", err)
		}
		for i := range list.APIResources {
			api := &list.APIResources[i]
			r := &resource{GroupVersionResource: gv.WithResource(api.Name), kind: api.Kind, reported: f.settings.reports(gv.WithResource(api.Name).GroupResource())}
			if isWatchable(api) && (r.reported || sources.Has(r.GroupResource())) {
				found[r.GroupResource()] = r
			}
		}
	}
	return found, failed, nil
}

func isWatchable(api *metav1.APIResource) bool {
	return slices.Contains(api.Verbs, "list") && slices.Contains(api.Verbs, "watch")
}

// settled reports whether the first full report can be sent: all resources are settled, or Patience
// has passed and at least one resource is settled.
func (f *collection) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.first.IsZero() {
		return false
	}
	if time.Since(f.first) > f.timing.Patience {
		// A resource that does not respond must not delay the report of the others.
		return slices.ContainsFunc(slices.Collect(maps.Values(f.collectors)), (*collector).settled)
	}
	if !f.complete {
		return false
	}
	for _, c := range f.collectors {
		if !c.settled() {
			return false
		}
	}
	return true
}

func (f *collection) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.collectors {
		c.stop()
	}
	for _, c := range f.collectors {
		<-c.done
	}
	clear(f.collectors)
}
