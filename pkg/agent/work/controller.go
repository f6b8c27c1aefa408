package work

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
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
)

const (
	// minBackoff and maxBackoff bound how long a failed work waits for its next try.
	minBackoff = 200 * time.Millisecond
	maxBackoff = 2 * time.Minute
	// passTimeout bounds one pass. Each object has a shorter limit of its own.
	passTimeout = 5 * time.Minute
	// staleDelay is when to look again at what an informer does not show yet.
	staleDelay = 200 * time.Millisecond
)

// States of a work in the metric.
const (
	stateApplied  = "applied"
	stateFailed   = "failed"
	stateRefused  = "refused"
	stateDeleting = "deleting"
	stateGone     = ""
)

// Config is what a Controller needs. All fields but EvictionGracePeriod and
// FeedbackJSONPaths are required.
type Config struct {
	// ClusterName is the name of the managed cluster, and so the namespace of its works.
	ClusterName string
	// HubHash identifies the hub, AgentID the agent; both are put on record.
	HubHash, AgentID string
	// Workers is how many works are handled at the same time.
	Workers int
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
	evictionGrace                 time.Duration
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

	queue   workqueue.TypedRateLimitingInterface[string]
	backoff workqueue.TypedRateLimiter[string]
	// failing bounds how many workers are busy with works that failed last
	// time, so that they cannot hold up the others.
	failing *semaphore.Weighted
	watches *objectWatches
	states  states

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
		clusterName: config.ClusterName, hubHash: config.HubHash, agentID: config.AgentID, workers: config.Workers, evictionGrace: config.EvictionGracePeriod, feedbackPaths: feedbackPaths,
		hub: config.Hub, managed: config.Managed, metadata: config.Metadata, executors: config.Executors,
		mapper: newDiscoveryMapper(config.Discovery), evaluator: newEvaluator(feedbackPaths), now: time.Now,
		hubInformers: externalversions.NewSharedInformerFactoryWithOptions(config.Hub, 0,
			externalversions.WithNamespace(config.ClusterName), externalversions.WithTransform(feed.DropManagedFields)),
		managedInformers: externalversions.NewSharedInformerFactoryWithOptions(config.Managed, 0,
			externalversions.WithTransform(feed.DropManagedFields)),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
		failing: semaphore.NewWeighted(int64(max(1, config.Workers/2))),
		counts:  map[string]string{},
		woken:   sets.New[string](),
	}
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(c.backoff, workqueue.TypedRateLimitingQueueConfig[string]{Name: "manifestwork"})
	c.watches = newObjectWatches(config.Metadata, func(work string) { c.queue.Add(work) })

	works := c.hubInformers.Work().V1().ManifestWorks()
	records := c.managedInformers.Work().V1().AppliedManifestWorks()
	if err := works.Informer().AddIndexers(cache.Indexers{executorIndex: executorIndexer}); err != nil {
		return nil, err
	}
	c.works, c.records, c.byExecutor = works.Lister().ManifestWorks(config.ClusterName), records.Lister(), works.Informer().GetIndexer()
	for _, source := range []struct {
		informer cache.SharedIndexInformer
		enqueue  func(any)
	}{
		{works.Informer(), c.enqueueWork},
		{records.Informer(), c.enqueueRecord},
	} {
		registration, err := source.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    source.enqueue,
			UpdateFunc: func(_, obj any) { source.enqueue(obj) },
			DeleteFunc: source.enqueue,
		})
		if err != nil {
			return nil, err
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

func (c *Controller) enqueueWork(obj any) {
	if _, name, err := cache.SplitMetaNamespaceKey(keyOf(obj)); err == nil && name != "" {
		c.queue.Add(name)
	}
}

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
	for range c.workers {
		running.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

// next handles one work of the queue. It reports whether there may be more.
func (c *Controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if ctx.Err() != nil {
		return false
	}
	woken := c.takeWoken(name)
	if c.backoff.NumRequeues(name) > 0 && !woken {
		if !c.failing.TryAcquire(1) {
			c.queue.AddAfter(name, wait.Jitter(staleDelay, 1))
			return true
		}
		defer c.failing.Release(1)
	}
	c.pass(ctx, name, woken)
	return true
}

// pass makes one pass over a work and decides when the next is due. woken is
// whether the executor of the work may have got other permissions.
func (c *Controller) pass(ctx context.Context, name string, woken bool) {
	logger := klog.FromContext(ctx).WithValues("work", name)
	passCtx, cancel := context.WithTimeout(klog.NewContext(ctx, logger), passTimeout)
	defer cancel()
	start := c.now()
	came, err := c.reconcile(passCtx, name, woken)
	if ctx.Err() != nil {
		return
	}
	c.count(name, came.state, err)
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
	if !came.waiting {
		c.backoff.Forget(name)
	}
	if came.again > 0 {
		c.queue.AddAfter(name, jitter(came.again))
	}
	logger.V(4).Info("Pass done", "state", came.state, "took", c.now().Sub(start))
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
