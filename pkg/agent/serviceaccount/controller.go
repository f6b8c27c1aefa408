package serviceaccount

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/agent/feed"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	authenticationinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	authenticationlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile/fair"
)

const (
	// minBackoff and maxBackoff bound how long a failed account waits for its next try.
	minBackoff = 200 * time.Millisecond
	maxBackoff = 2 * time.Minute
	// conflictBackoff bounds it while something is in the way that may go
	// without the agent being told.
	conflictBackoff = 30 * time.Second
	// passTimeout bounds one pass, and stuckTime how long a worker may neither return nor make
	// a request.
	passTimeout = 30 * time.Second
	stuckTime   = 30 * time.Second

	queueName = "managedserviceaccount"
	// revocationWorkers is how many workers there are in addition for accounts that are deleted.
	revocationWorkers = 4
)

// Config is what a Controller needs. All fields are required.
type Config struct {
	// ClusterName is the name of the managed cluster, and so the namespace of its accounts.
	ClusterName string
	// Identity marks the ServiceAccounts of this agent; see [Identity].
	Identity string
	// HubHost is the address of the hub, for people.
	HubHost string
	// Namespace is where ServiceAccounts live on the managed cluster.
	Namespace string
	// Workers is how many accounts are handled at the same time.
	Workers int
	// VerifyInterval is how often a token is checked without a reason.
	VerifyInterval time.Duration

	// Hub reads and reports ManagedServiceAccounts.
	Hub versioned.Interface
	// HubSecrets keeps the Secrets on the hub.
	HubSecrets kubernetes.Interface
	// Managed keeps the ServiceAccounts.
	Managed kubernetes.Interface
	// CA reads the PEM bundle that verifies the API server of the managed cluster.
	CA func() ([]byte, error)
	// Clock is the time.
	Clock clock.WithTicker
}

// Controller keeps the ServiceAccounts of one managed cluster and their tokens.
type Controller struct {
	clusterName, identity, hubHost, namespace string
	workers                                   int
	verifyInterval                            time.Duration
	hub                                       versioned.Interface
	hubSecrets, managed                       kubernetes.Interface
	caSource                                  func() ([]byte, error)
	clock                                     clock.WithTicker
	// skew is how far the managed cluster's clock is ahead of ours.
	skew atomic.Int64
	ca   caBundle

	ownerInformer, accountInformer cache.SharedIndexInformer
	ownersSynced, accountsSynced   cache.InformerSynced
	owners                         authenticationlisters.ManagedServiceAccountNamespaceLister
	accounts                       corelisters.ServiceAccountLister
	hubAccounts                    feed.Optional

	// queue adds accounts to lanes, which hands them to workers.
	queue   workqueue.TypedDelayingInterface[string]
	lanes   *fair.Queue[string]
	backoff workqueue.TypedRateLimiter[string]
	// watchdog finds the workers that do not return.
	watchdog *fair.Watchdog
	states   states

	mu sync.Mutex
	// made holds ServiceAccounts from their creation until the watch shows them.
	made map[string]*corev1.ServiceAccount
	// accountsErr is why the watch of ServiceAccounts failed last.
	accountsErr error
	counts      map[string]string // state of each account, for the metric
}

// New returns a controller. It makes no request.
func New(config Config) (*Controller, error) {
	c := &Controller{
		clusterName: config.ClusterName, identity: config.Identity, hubHost: config.HubHost, namespace: config.Namespace,
		workers: config.Workers, verifyInterval: config.VerifyInterval,
		hub: config.Hub, hubSecrets: config.HubSecrets, managed: config.Managed, caSource: config.CA, clock: config.Clock,
		backoff:     workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
		hubAccounts: feed.Optional{Resource: "ManagedServiceAccounts"},
		made:        map[string]*corev1.ServiceAccount{}, counts: map[string]string{},
	}
	c.watchdog = fair.NewWatchdog(queueName, nil)
	c.lanes = fair.NewQueue(fair.Config[string]{
		Name: queueName, Class: c.class, Workers: config.Workers, WorkersPerTenant: config.Workers, PriorityWorkers: revocationWorkers, Clock: config.Clock,
	})
	c.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Name: queueName, Clock: config.Clock, Queue: c.lanes})

	c.ownerInformer = authenticationinformers.NewManagedServiceAccountInformer(config.Hub, config.ClusterName, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	// Those of others are watched as well, to know when they are no longer in the way.
	c.accountInformer = coreinformers.NewFilteredServiceAccountInformer(config.Managed, config.Namespace, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(options *metav1.ListOptions) { options.LabelSelector = v1beta1.ManagedServiceAccountLabel })
	c.owners = authenticationlisters.NewManagedServiceAccountLister(c.ownerInformer.GetIndexer()).ManagedServiceAccounts(config.ClusterName)
	c.accounts = corelisters.NewServiceAccountLister(c.accountInformer.GetIndexer())
	err := errors.Join(
		c.ownerInformer.SetTransform(feed.DropManagedFields),
		c.accountInformer.SetTransform(feed.DropManagedFields),
		c.ownerInformer.SetWatchErrorHandlerWithContext(c.hubAccounts.NotWatched),
		c.accountInformer.SetWatchErrorHandlerWithContext(c.accountsNotWatched),
	)
	if err != nil {
		return nil, err
	}
	if c.ownersSynced, err = feed.OnChange(c.ownerInformer, c.enqueue); err != nil {
		return nil, err
	}
	c.accountsSynced, err = feed.OnChange(c.accountInformer, func(object metav1.Object) {
		if account, ok := object.(*corev1.ServiceAccount); ok {
			c.forget(account)
		}
		c.enqueue(object)
	})
	return c, err
}

func (c *Controller) enqueue(object metav1.Object) { c.queue.Add(object.GetName()) }

// class returns how an account is scheduled at present. One that is deleted, whose token has to be
// revoked, waits for no other.
func (c *Controller) class(name string) fair.Class {
	owner, err := c.owners.Get(name)
	return fair.Class{
		Priority: err != nil || owner.DeletionTimestamp != nil, Tenant: name, Failed: c.backoff.NumRequeues(name) > 0,
	}
}

func (c *Controller) enqueueAll() {
	owners, err := c.owners.List(labels.Everything())
	if err != nil {
		return
	}
	for _, owner := range owners {
		c.queue.Add(owner.Name)
	}
}

func (c *Controller) accountsNotWatched(ctx context.Context, reflector *cache.Reflector, err error) {
	c.mu.Lock()
	c.accountsErr = err
	c.mu.Unlock()
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}

// watchError is why the ServiceAccounts are not known.
func (c *Controller) watchError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.accountsErr != nil {
		return c.accountsErr
	}
	return errors.New("no answer yet")
}

// Synced reports whether the controller knows all accounts of hub and cluster.
func (c *Controller) Synced() bool { return c.ownersSynced() && c.accountsSynced() }

// Unserved reports whether the hub has no ManagedServiceAccounts for this agent:
// it does not serve them, or does not allow the agent to see them.
func (c *Controller) Unserved() bool { return !c.ownersSynced() && c.hubAccounts.Absent() }

// Stuck returns an error that names the objects from which workers do not return, or
// nil if there are none.
func (c *Controller) Stuck() error { return c.watchdog.Err() }

// Run works until ctx ends, and returns when all it started has ended.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	var running sync.WaitGroup
	defer func() {
		c.queue.ShutDown()
		running.Wait()
		c.countNone()
	}()
	c.readCA(ctx)
	running.Go(func() { c.watchCA(ctx) })
	running.Go(func() { c.ownerInformer.RunWithContext(ctx) })
	running.Go(func() { c.accountInformer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.ownersSynced) {
		return nil
	}
	// A cluster that refuses to be watched is reported on each account.
	err := wait.PollUntilContextCancel(ctx, minBackoff/4, true, func(context.Context) (bool, error) {
		return c.accountsSynced() || apierrors.IsForbidden(c.watchError()), nil
	})
	if err != nil {
		return nil
	}
	logger.Info("Keeping ServiceAccounts", "cluster", c.clusterName, "namespace", c.namespace, "identity", c.identity, "workers", c.workers)
	running.Go(func() { c.watchdog.Run(ctx) })
	running.Go(func() { c.lanes.Serve(ctx, c.next) })
	<-ctx.Done()
	return nil
}

// next handles one account of the queue.
func (c *Controller) next(ctx context.Context, name string, class fair.Class) {
	if ctx.Err() != nil {
		return
	}
	ctx, end := c.watchdog.Begin(ctx, "ManagedServiceAccount "+name, stuckTime, func() { c.lanes.Abandon(name) })
	defer end()
	c.pass(fair.WithClass(ctx, class), name)
}

// pass makes one pass over an account and decides when the next is due.
func (c *Controller) pass(ctx context.Context, name string) {
	logger := klog.FromContext(ctx).WithValues("account", name)
	passCtx, cancel := context.WithTimeout(klog.NewContext(ctx, logger), passTimeout)
	defer cancel()
	start := time.Now()
	st := c.states.get(name)
	came, err := c.reconcile(passCtx, name, st)
	if ctx.Err() != nil {
		return
	}
	c.count(name, came.state)
	if err == nil {
		passSeconds.WithLabelValues("success").Observe(time.Since(start).Seconds())
		if !came.waiting {
			st.notBefore, st.complaint = time.Time{}, ""
			c.backoff.Forget(name)
		}
		if came.again > 0 {
			c.queue.AddAfter(name, came.again)
		}
		return
	}
	passSeconds.WithLabelValues("error").Observe(time.Since(start).Seconds())
	delay := c.backoff.When(name)
	if came.conflict {
		delay = min(delay, conflictBackoff*2/3)
	}
	delay += rand.N(delay/2 + 1)
	st.notBefore = c.clock.Now().Add(delay)
	c.queue.AddAfter(name, delay)
	if errors.Is(err, errAgain) || st.complaint == describe(err) {
		logger.V(2).Info("Account is not yet as it should be", "err", err, "retryAfter", delay)
		return
	}
	st.complaint = describe(err)
	logger.Error(err, "Account is not as it should be", "retryAfter", delay)
}

// countNone takes all accounts out of the metric: another controller may follow.
func (c *Controller) countNone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, state := range c.counts {
		accountsByState.WithLabelValues(state).Dec()
		delete(c.counts, name)
	}
}

// count keeps the metric of accounts by state.
func (c *Controller) count(name, state string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.counts[name]
	if before == state {
		return
	}
	if before != "" {
		accountsByState.WithLabelValues(before).Dec()
	}
	if state == "" {
		delete(c.counts, name)
		return
	}
	c.counts[name] = state
	accountsByState.WithLabelValues(state).Inc()
}
