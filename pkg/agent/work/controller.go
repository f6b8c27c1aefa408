package work

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/decide"
	"open-cluster-management.io/hub-apiserver/pkg/agent/work/removal"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	// firstRetry and lastRetry bound the backoff of a failed ManifestWork.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Minute
	// passTimeout bounds one pass. The requests for one object have a shorter limit.
	passTimeout = 5 * time.Minute
	// stuckTimeout is the time after which a worker that ignores the end of its pass is stuck.
	stuckTimeout = passTimeout + 30*time.Second
	// supersededGrace is the time that a pending request may take after the ManifestWork is deleted, which
	// a pass notices after deletedPoll.
	supersededGrace = 4 * time.Second
	deletedPoll     = time.Second
	// staleDelay is the delay for an informer to receive a write.
	staleDelay = 200 * time.Millisecond
	// defaultSlice is the default of Config.Slice. Passes are short, so that tenants take turns.
	defaultSlice = 10 * time.Second
)

// errSuperseded ends a pass over a ManifestWork that is deleted during the pass.
var errSuperseded = errors.New("the ManifestWork was deleted")

// States of a ManifestWork in the metric.
const (
	stateApplied  = "applied"
	stateFailed   = reconcile.StateFailed
	stateRefused  = "refused"
	stateDeleting = "deleting"
	stateRetained = "retained"
	stateGone     = ""
)

// Config is the configuration of a Controller. All fields except WorkersPerTenant, PriorityWorkers, Slice,
// EvictionGracePeriod, FeedbackJSONPaths, Restored and Tracer are required.
type Config struct {
	// ClusterName is also the namespace of the ManifestWorks.
	ClusterName string
	// HubHash identifies the hub and AgentID the agent in AppliedManifestWorks.
	HubHash, AgentID string
	// Workers is the number of ManifestWorks that are handled in parallel. WorkersPerTenant limits those of one
	// tenant, and defaults to Workers. PriorityWorkers are additional workers for deletions and ManifestWorks of
	// ClusterPermissions.
	Workers, WorkersPerTenant, PriorityWorkers int
	// Slice is the time after which a pass leaves the remaining objects to the next turn of its
	// ManifestWork. It defaults to 10 seconds.
	Slice time.Duration
	// EvictionGracePeriod is the time that objects stay after their ManifestWork disappears from
	// the hub without being finalized.
	EvictionGracePeriod time.Duration
	// FeedbackJSONPaths are parsed by decide.ParseFeedbackPaths.
	FeedbackJSONPaths []string

	// Managed reads and writes AppliedManifestWorks. Metadata watches and removes applied objects as the agent.
	Hub, Managed versioned.Interface
	Metadata     metadata.Interface
	Discovery    discovery.DiscoveryInterface
	// Executors decides with which permissions a ManifestWork acts.
	Executors Executors
	// Restored keeps objects that a restored hub does not know. If it is nil, none stay.
	Restored *restored.Guard
	// Tracer records the spans of passes. If it is nil, there are none.
	Tracer trace.TracerProvider
}

// Controller applies the ManifestWorks of one managed cluster. Its loop reconciles ManifestWorks
// and, by names without namespace, AppliedManifestWorks of previous hubs.
type Controller struct {
	Config
	feedbackPaths decide.FeedbackPaths
	mapper        *discoveryMapper
	evaluator     *decide.Evaluator
	remover       *removal.Remover
	tracer        *tracer
	now           func() time.Time

	hubInformers, managedInformers externalversions.SharedInformerFactory
	workInformer, recordInformer   cache.SharedIndexInformer
	works                          worklisters.ManifestWorkNamespaceLister
	records                        worklisters.AppliedManifestWorkLister
	// workCache and recordCache contain written versions that the informers may not contain yet.
	workCache, recordCache cache.MutationCache

	loop    reconcile.Loop
	watches *objectWatches
	states  states
}

// New returns a controller. It makes no request.
func New(config Config) (*Controller, error) {
	feedbackPaths, err := decide.ParseFeedbackPaths(config.FeedbackJSONPaths)
	if err != nil {
		return nil, err
	}
	config.Slice, config.Executors = cmp.Or(config.Slice, defaultSlice), tracedExecutors{config.Executors}
	mapper := newDiscoveryMapper(config.Discovery)
	c := &Controller{
		Config: config, feedbackPaths: feedbackPaths, tracer: newTracer(config.Tracer, time.Now),
		mapper: mapper, evaluator: decide.NewEvaluator(feedbackPaths), now: time.Now,
		remover: &removal.Remover{Objects: config.Metadata, Records: config.Managed.WorkV1().AppliedManifestWorks(), Served: mapper.served, Now: time.Now},
		hubInformers: externalversions.NewSharedInformerFactoryWithOptions(config.Hub, 0,
			externalversions.WithNamespace(config.ClusterName), externalversions.WithTransform(reconcile.DropManagedFields)),
		managedInformers: externalversions.NewSharedInformerFactoryWithOptions(config.Managed, 0,
			externalversions.WithTransform(reconcile.DropManagedFields)),
	}
	works := c.hubInformers.Work().V1().ManifestWorks()
	records := c.managedInformers.Work().V1().AppliedManifestWorks()
	c.workInformer, c.recordInformer = works.Informer(), records.Informer()
	c.works, c.records = works.Lister().ManifestWorks(config.ClusterName), records.Lister()
	c.workCache, c.recordCache = newestOf(c.workInformer), newestOf(c.recordInformer)
	c.loop = reconcile.Loop{
		Name: "manifestwork",
		Feeds: []reconcile.Feed{
			{Informer: c.workInformer, Keys: reconcile.Own},
			{Informer: c.recordInformer, Keys: c.recordKeys},
		},
		Reconcile: c.reconcile, Class: c.class, Retry: c.retry,
		Workers: config.Workers, TenantWorkers: cmp.Or(config.WorkersPerTenant, config.Workers),
		UrgentWorkers: config.PriorityWorkers,
		Timeout:       passTimeout, StuckTimeout: stuckTimeout, FirstRetry: firstRetry, LastRetry: lastRetry,
		Seconds: passSeconds, ReportsStates: true,
	}
	c.watches = newObjectWatches(config.Metadata, c.loop.Add)
	return c, nil
}

// newestOf returns a cache of the newest versions of the objects of an informer. It contains the objects of all
// ManifestWorks that may be written before the informer has received their events.
func newestOf(informer cache.SharedIndexInformer) cache.MutationCache {
	options := cache.MutationCacheOptions{MaxCacheSize: 10_000}
	return cache.NewIntegerResourceVersionMutationCacheWithOptions(klog.Background(), informer.GetStore(), options)
}

func (c *Controller) key(work string) cache.ObjectName {
	return cache.ObjectName{Namespace: c.ClusterName, Name: work}
}

// recordKeys returns the key of the ManifestWork of an AppliedManifestWork, or the key of the
// AppliedManifestWork if it belongs to a previous hub.
func (c *Controller) recordKeys(obj any) []cache.ObjectName {
	record, ok := obj.(*workv1.AppliedManifestWork)
	switch {
	case !ok:
		return nil
	case record.Spec.HubHash == c.HubHash:
		return []cache.ObjectName{c.key(record.Spec.ManifestWorkName)}
	case c.former(record):
		return []cache.ObjectName{{Name: record.Name}}
	}
	return nil
}

// Synced reports whether all ManifestWorks and AppliedManifestWorks are known.
func (c *Controller) Synced() bool { return c.workInformer.HasSynced() && c.recordInformer.HasSynced() }

// Run applies ManifestWorks until ctx ends. It returns when all its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	defer func() {
		c.watches.done.Wait()
		c.hubInformers.Shutdown()
		c.managedInformers.Shutdown()
	}()
	c.watches.ctx = ctx
	c.hubInformers.StartWithContext(ctx)
	c.managedInformers.StartWithContext(ctx)
	klog.FromContext(ctx).Info("Applying ManifestWorks", "cluster", c.ClusterName, "workers", c.Workers)
	c.loop.Run(ctx)
	return nil
}

type outcome struct {
	// state is the state in the metric.
	state string
	// again is the maximum delay of the next pass. If it is zero, no pass is due.
	again time.Duration
	// waiting is true if a manifest that failed before waits for its next attempt.
	waiting bool
	// partial is true if the pass left objects to the next turn of the ManifestWork.
	partial bool
}

func (c *Controller) class(key cache.ObjectName) fair.Class {
	work, _ := c.works.Get(key.Name) // the only error is that the informer does not contain it
	return c.states.class(key, work)
}

// reconcile makes one pass over an object of the loop and returns the delay of the next pass.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	result, err := c.pass(ctx, key)
	c.states.passed(key, result, err)
	if result.partial {
		return 0, reconcile.RequeueAfter(0)
	}
	state := result.state
	if err != nil {
		state = cmp.Or(state, stateFailed)
	}
	c.loop.SetState(key, state)
	again := wait.Jitter(result.again, 0.5)
	switch {
	case err != nil:
		return 0, err
	case result.waiting:
		return 0, reconcile.RequeueAfter(again)
	}
	return again, nil
}

// pass makes one pass over a ManifestWork, or over a record without one.
func (c *Controller) pass(ctx context.Context, key cache.ObjectName) (outcome, error) {
	st := c.states.get(key)
	if key.Namespace == "" {
		return c.evictFormer(ctx, key, st)
	}
	work := c.cachedWork(key.Name)
	if work == nil {
		return c.evict(ctx, key, st)
	}
	st.seen = true
	if work.DeletionTimestamp != nil {
		return c.tracer.pass(ctx, work, st, func(ctx context.Context) (outcome, error) { return c.finalize(ctx, key, work, st) })
	}
	applyCtx, end := c.untilDeleted(ctx, work)
	defer end()
	result, err := c.tracer.pass(applyCtx, work, st, func(ctx context.Context) (outcome, error) { return c.apply(ctx, key, work, st) })
	if errors.Is(context.Cause(applyCtx), errSuperseded) {
		return outcome{partial: true}, nil
	}
	return result, err
}

// untilDeleted returns the context of a pass that applies a ManifestWork. It ends supersededGrace after the
// ManifestWork is deleted, so that a request without a response does not delay the removal.
func (c *Controller) untilDeleted(ctx context.Context, work *workv1.ManifestWork) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		deleted := func(context.Context) (bool, error) { return c.deleted(work), nil }
		if wait.PollUntilContextCancel(ctx, deletedPoll, false, deleted) == nil {
			time.AfterFunc(supersededGrace, func() { cancel(errSuperseded) })
		}
	}()
	return ctx, func() { cancel(nil) }
}

// deleted reports whether a ManifestWork does not exist on the hub, or is being deleted.
func (c *Controller) deleted(work *workv1.ManifestWork) bool {
	known, err := c.works.Get(work.Name)
	return err != nil || known.UID != work.UID || known.DeletionTimestamp != nil
}

// retry stores the time at which failed manifests are retried. The next pass may be earlier, because it
// checks the permissions of the executor: if they are lost, the conditions of the other manifests change.
func (c *Controller) retry(key cache.ObjectName, _ error, delay time.Duration) time.Duration {
	st, now := c.states.get(key), c.now()
	st.notBefore = now.Add(delay)
	if st.admitted.until.IsZero() {
		return delay
	}
	return min(delay, max(st.admitted.until.Sub(now), firstRetry))
}
