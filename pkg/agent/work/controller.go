package work

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"open-cluster-management.io/hub-apiserver/pkg/agent/feed"
	workv1 "open-cluster-management.io/hub-apiserver/pkg/apis/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	"open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions"
	worklisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/work/v1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	// minBackoff and maxBackoff bound how long a failed work waits for its next try.
	minBackoff = 200 * time.Millisecond
	maxBackoff = 2 * time.Minute
	// passTimeout bounds one pass. Each object has a shorter limit of its own.
	passTimeout = 5 * time.Minute
	// staleDelay is when to look again at what an informer does not show yet.
	staleDelay = 200 * time.Millisecond
	// defaultPriorityWorkers is how many workers the priority lane has if nothing else
	// is said.
	defaultPriorityWorkers = 2
	// queueName is the name of the queue in metrics.
	queueName = "manifestwork"
)

// States of a work in the metric.
const (
	stateApplied  = "applied"
	stateFailed   = "failed"
	stateRefused  = "refused"
	stateDeleting = "deleting"
	stateGone     = ""
)

// Config is what a Controller needs. All fields but WorkersPerTenant, PriorityWorkers,
// Slice, EvictionGracePeriod and FeedbackJSONPaths are required.
type Config struct {
	// ClusterName is the name of the managed cluster, and so the namespace of its works.
	ClusterName string
	// HubHash identifies the hub, AgentID the agent; both are put on record.
	HubHash, AgentID string
	// Workers is how many works are handled at the same time, WorkersPerTenant how many
	// of one tenant; all if zero.
	Workers, WorkersPerTenant int
	// PriorityWorkers is how many workers there are in addition for deletions,
	// revocations and works of ClusterPermissions; 2 if zero.
	PriorityWorkers int
	// Slice is how long a pass goes on before it leaves the other objects of its work to
	// the next turn; 10 seconds if zero.
	Slice time.Duration
	// EvictionGracePeriod is how long the objects of a work stay that the hub
	// lost without the agent having let it go.
	EvictionGracePeriod time.Duration
	// FeedbackJSONPaths are the paths of objects that works may have reported, such
	// as .status; see ParseFeedbackPaths. None allow everything.
	FeedbackJSONPaths []string

	// Hub reads and reports ManifestWorks.
	Hub versioned.Interface
	// Managed keeps AppliedManifestWorks.
	Managed versioned.Interface
	// Metadata watches and removes applied objects, as the agent.
	Metadata metadata.Interface
	// Discovery finds the resources of the managed cluster.
	Discovery discovery.DiscoveryInterface
	// Executors decides with whose permissions a work acts.
	Executors Executors
}

// Controller applies the ManifestWorks of one managed cluster.
type Controller struct {
	clusterName, hubHash, agentID string
	workers                       int
	evictionGrace, sliceTime      time.Duration
	feedbackPaths                 FeedbackPaths

	hub, managed versioned.Interface
	metadata     metadata.Interface
	executors    Executors
	mapper       *discoveryMapper
	evaluator    *evaluator
	now          func() time.Time

	hubInformers, managedInformers externalversions.SharedInformerFactory
	synced                         []cache.InformerSynced
	works                          worklisters.ManifestWorkNamespaceLister
	byExecutor                     cache.Indexer
	records                        worklisters.AppliedManifestWorkLister

	// queue is what adds works to lanes, which is what hands them to workers.
	queue    workqueue.TypedDelayingInterface[string]
	lanes    *fair.Queue[string]
	backoff  workqueue.TypedRateLimiter[string]
	schedule schedule
	watchdog *fair.Watchdog
	watches  *objectWatches
	states   states

	mu     sync.Mutex
	counts map[string]string // state of each work, for the metric
	// woken are the works whose executor has changed since their last pass.
	woken sets.Set[string]
}

// New returns a controller. It makes no request.
func New(config Config) (*Controller, error) {
	feedbackPaths, err := ParseFeedbackPaths(config.FeedbackJSONPaths)
	if err != nil {
		return nil, err
	}
	c := &Controller{
		clusterName: config.ClusterName, hubHash: config.HubHash, agentID: config.AgentID, workers: config.Workers, evictionGrace: config.EvictionGracePeriod, sliceTime: cmp.Or(config.Slice, defaultSlice), feedbackPaths: feedbackPaths,
		hub: config.Hub, managed: config.Managed, metadata: config.Metadata, executors: config.Executors,
		mapper: newDiscoveryMapper(config.Discovery), evaluator: newEvaluator(feedbackPaths), now: time.Now,
		hubInformers: externalversions.NewSharedInformerFactoryWithOptions(config.Hub, 0,
			externalversions.WithNamespace(config.ClusterName), externalversions.WithTransform(feed.DropManagedFields)),
		managedInformers: externalversions.NewSharedInformerFactoryWithOptions(config.Managed, 0,
			externalversions.WithTransform(feed.DropManagedFields)),
		backoff:  workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
		schedule: schedule{works: map[string]*standing{}},
		watchdog: fair.NewWatchdog(queueName, nil),
		counts:   map[string]string{},
		woken:    sets.New[string](),
	}
	c.lanes = fair.NewQueue(fair.Config[string]{
		Name: queueName, Class: c.class,
		Workers: config.Workers, WorkersPerTenant: cmp.Or(config.WorkersPerTenant, config.Workers),
		PriorityWorkers: cmp.Or(config.PriorityWorkers, defaultPriorityWorkers),
	})
	c.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: queueName, Queue: c.lanes})
	c.watches = newObjectWatches(config.Metadata, func(work string) { c.queue.Add(work) })

	works := c.hubInformers.Work().V1().ManifestWorks()
	records := c.managedInformers.Work().V1().AppliedManifestWorks()
	if err := works.Informer().AddIndexers(cache.Indexers{executorIndex: executorIndexer}); err != nil {
		return nil, err
	}
	c.works, c.records, c.byExecutor = works.Lister().ManifestWorks(config.ClusterName), records.Lister(), works.Informer().GetIndexer()
	for _, source := range []struct {
		informer      cache.SharedIndexInformer
		enqueue, lost func(any)
	}{
		{works.Informer(), c.enqueueWork, c.enqueueLost},
		{records.Informer(), c.enqueueRecord, c.enqueueRecord},
	} {
		registration, err := source.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    source.enqueue,
			UpdateFunc: func(_, obj any) { source.enqueue(obj) },
			DeleteFunc: source.lost,
		})
		if err != nil {
			return nil, err
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

func (c *Controller) enqueueWork(obj any) {
	if work, ok := obj.(*workv1.ManifestWork); ok {
		c.schedule.observe(work)
		c.queue.Add(work.Name)
	}
}

func (c *Controller) enqueueLost(obj any) {
	if _, name, err := cache.SplitMetaNamespaceKey(keyOf(obj)); err == nil && name != "" {
		c.schedule.lost(name)
		c.queue.Add(name)
	}
}

// class returns how a work is scheduled at present.
func (c *Controller) class(name string) fair.Class {
	c.mu.Lock()
	woken := c.woken.Has(name)
	c.mu.Unlock()
	return c.schedule.class(name, c.backoff.NumRequeues(name) > 0, woken)
}

// Stuck returns an error that names the works from which workers do not return, nil if
// there are none.
func (c *Controller) Stuck() error { return c.watchdog.Err() }

func (c *Controller) enqueueRecord(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	record, ok := obj.(*workv1.AppliedManifestWork)
	switch {
	case !ok:
	case record.Spec.HubHash == c.hubHash:
		c.queue.Add(record.Spec.ManifestWorkName)
	case c.former(record):
		c.queue.Add(formerKey + record.Name)
	}
}

func keyOf(obj any) string {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return ""
	}
	return key
}

// Synced reports whether the controller knows all works and all records.
func (c *Controller) Synced() bool {
	for _, synced := range c.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// Run works until ctx ends, and returns when all it started has ended.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	var running sync.WaitGroup
	learnCtx, forget := context.WithCancel(ctx)
	defer func() {
		forget()
		c.queue.ShutDown()
		running.Wait()
		c.countNone()
		c.watches.wait()
		c.hubInformers.Shutdown()
		c.managedInformers.Shutdown()
	}()
	c.watches.start(ctx)
	running.Go(func() { c.executors.Run(learnCtx, c.executorChanged) })
	c.hubInformers.StartWithContext(ctx)
	c.managedInformers.StartWithContext(ctx)
	logger.Info("Waiting for the ManifestWorks of the hub and the AppliedManifestWorks of the managed cluster")
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return nil
	}
	logger.Info("Applying ManifestWorks", "cluster", c.clusterName, "workers", c.workers)
	running.Go(func() { c.watchdog.Run(ctx) })
	running.Go(func() { c.lanes.Serve(ctx, c.next) })
	<-ctx.Done()
	return nil
}

// next handles one work of the queue.
func (c *Controller) next(ctx context.Context, name string, class fair.Class) {
	if ctx.Err() != nil {
		return
	}
	logger := klog.FromContext(ctx).WithValues("work", name)
	ctx, end := c.watchdog.Begin(klog.NewContext(ctx, logger), "ManifestWork "+name, stuckTime, func() { c.lanes.Abandon(name) })
	defer end()
	c.pass(fair.WithClass(ctx, class), name, class.Priority)
}

// pass makes one pass over a work and decides when the next is due. priority is
// whether a worker of the priority lane makes it.
func (c *Controller) pass(ctx context.Context, name string, priority bool) {
	logger := klog.FromContext(ctx)
	deadlineCtx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	passCtx, end := c.schedule.begin(deadlineCtx, name)
	defer end()
	start := c.now()
	came, err := c.reconcile(passCtx, name, wakeup{woken: c.takeWoken(name), priority: priority})
	if ctx.Err() != nil {
		return
	}
	if errors.Is(context.Cause(passCtx), errSuperseded) {
		// The deletion has queued the work again.
		return
	}
	c.schedule.passed(name, came, err)
	if !came.partial {
		c.count(name, came.state, err)
	}
	if err != nil {
		passSeconds.WithLabelValues("error").Observe(c.now().Sub(start).Seconds())
		delay := jitter(c.backoff.When(name))
		c.states.get(name).notBefore = c.now().Add(delay)
		c.queue.AddAfter(name, delay)
		if isConflict(err) {
			logger.V(2).Info("Another writer was faster", "err", err, "retryAfter", delay)
		} else {
			logger.Error(err, "Work is not as it should be", "retryAfter", delay)
		}
		return
	}
	passSeconds.WithLabelValues("success").Observe(c.now().Sub(start).Seconds())
	if !came.waiting && !came.partial {
		c.backoff.Forget(name)
	}
	switch {
	case came.partial:
		c.queue.Add(name)
	case came.again > 0:
		c.queue.AddAfter(name, jitter(came.again))
	}
	logger.V(4).Info("Pass done", "state", came.state, "partial", came.partial, "took", c.now().Sub(start))
}

// jitter spreads tries that began together: the delay, or up to half as long again.
func jitter(delay time.Duration) time.Duration {
	return delay + rand.N(delay/2+1)
}

func isConflict(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsConflict(err)
}

// countNone takes all works out of the metric: another controller may follow.
func (c *Controller) countNone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, state := range c.counts {
		worksByState.WithLabelValues(state).Dec()
		delete(c.counts, name)
	}
}

// count keeps the metric of works by state.
func (c *Controller) count(name, state string, err error) {
	if state == stateGone && err != nil {
		state = stateFailed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.counts[name]
	if before == state {
		return
	}
	if before != "" {
		worksByState.WithLabelValues(before).Dec()
	}
	if state == stateGone {
		delete(c.counts, name)
		return
	}
	c.counts[name] = state
	worksByState.WithLabelValues(state).Inc()
}
