package serviceaccount

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/agent/restored"
	"open-cluster-management.io/hub-apiserver/pkg/apis/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/generated/clientset/versioned"
	authenticationinformers "open-cluster-management.io/hub-apiserver/pkg/generated/informers/externalversions/authentication/v1beta1"
	authenticationlisters "open-cluster-management.io/hub-apiserver/pkg/generated/listers/authentication/v1beta1"
	"open-cluster-management.io/hub-apiserver/pkg/reconcile"
)

const (
	// firstRetry and lastRetry bound the backoff of a failed account.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Minute
	// conflictRetry bounds the delay after a conflict with an object that is not watched.
	conflictRetry = 30 * time.Second
	// passTimeout bounds one pass.
	passTimeout = 30 * time.Second
	// syncPoll is the interval at which Run checks whether ServiceAccounts can be watched.
	syncPoll = 50 * time.Millisecond
	// revocationWorkers is the number of additional workers for deleted accounts.
	revocationWorkers = 4
)

// Config is the configuration of a Controller. All fields except Restored are required.
type Config struct {
	// ClusterName is also the namespace of the ManagedServiceAccounts and of their Secrets on the hub.
	ClusterName string
	// Identity marks the ServiceAccounts of this agent; see [Identity]. HubHost is written to an annotation of them.
	Identity, HubHost string
	// Namespace is the namespace of the ServiceAccounts on the managed cluster.
	Namespace string
	// Workers is the number of accounts that are handled in parallel.
	Workers int
	// VerifyInterval is the interval between checks of a token without a trigger.
	VerifyInterval time.Duration

	Hub                 versioned.Interface
	HubSecrets, Managed kubernetes.Interface
	// CA reads the PEM bundle that verifies the API server of the managed cluster.
	CA    func() ([]byte, error)
	Clock clock.WithTicker
	// Restored keeps ServiceAccounts that a restored hub does not know. If it is nil, none stay.
	Restored *restored.Guard
}

// Controller maintains the ServiceAccounts of one managed cluster and their tokens. Its loop
// reconciles accounts by name.
type Controller struct {
	Config
	// skew is the time in nanoseconds by which the clock of the managed cluster is ahead of the
	// agent's clock.
	skew atomic.Int64
	// ca is nil until Run has read the CA.
	ca atomic.Pointer[caBundle]

	ownerInformer, accountInformer cache.SharedIndexInformer
	owners                         authenticationlisters.ManagedServiceAccountNamespaceLister
	accounts                       corelisters.ServiceAccountLister
	hubAccounts                    reconcile.Optional

	loop reconcile.Loop
	// states contains the accountState of every account.
	states sync.Map
	// accountsErr is the last error of the watch of ServiceAccounts.
	accountsErr atomic.Pointer[error]
}

// New returns a controller. It makes no request.
func New(config Config) (*Controller, error) {
	c := &Controller{Config: config, hubAccounts: reconcile.Optional{Resource: "ManagedServiceAccounts"}}
	c.ownerInformer = authenticationinformers.NewManagedServiceAccountInformer(config.Hub, config.ClusterName, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	// ServiceAccounts of other owners are also watched, because a deletion may resolve a conflict.
	c.accountInformer = coreinformers.NewFilteredServiceAccountInformer(config.Managed, config.Namespace, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		func(options *metav1.ListOptions) { options.LabelSelector = v1beta1.ManagedServiceAccountLabel })
	c.owners = authenticationlisters.NewManagedServiceAccountLister(c.ownerInformer.GetIndexer()).ManagedServiceAccounts(config.ClusterName)
	c.accounts = corelisters.NewServiceAccountLister(c.accountInformer.GetIndexer())
	c.loop = reconcile.Loop{
		Name: "managedserviceaccount",
		Feeds: []reconcile.Feed{
			// A ServiceAccount has the name of its account.
			{Informer: c.ownerInformer, Keys: reconcile.ByName},
			// If the managed cluster forbids the watch, pass reports that on each account.
			{Informer: c.accountInformer, Keys: reconcile.ByName, MaybeAbsent: true},
		},
		Reconcile: c.pass, Urgent: c.urgent, Retry: c.retry,
		Workers: config.Workers, TenantWorkers: config.Workers, UrgentWorkers: revocationWorkers,
		Timeout: passTimeout, StuckTimeout: passTimeout, FirstRetry: firstRetry, LastRetry: lastRetry, Clock: config.Clock,
		ReportsStates: true,
	}
	return c, errors.Join(
		c.ownerInformer.SetTransform(reconcile.DropManagedFields),
		c.accountInformer.SetTransform(reconcile.DropManagedFields),
		c.ownerInformer.SetWatchErrorHandlerWithContext(c.hubAccounts.NotWatched),
		c.accountInformer.SetWatchErrorHandlerWithContext(c.accountsNotWatched),
	)
}

// urgent reports whether an account is deleted. Its token must then be revoked.
func (c *Controller) urgent(key cache.ObjectName) bool {
	owner, err := c.owners.Get(key.Name)
	return err != nil || owner.DeletionTimestamp != nil
}

func (c *Controller) enqueueAll() {
	owners, _ := c.owners.List(labels.Everything()) // a lister does not fail
	for _, owner := range owners {
		c.loop.Add(cache.ObjectName{Name: owner.Name})
	}
}

func (c *Controller) accountsNotWatched(ctx context.Context, reflector *cache.Reflector, err error) {
	c.accountsErr.Store(&err)
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}

// watchError returns an error with the reason why the ServiceAccounts are not known.
func (c *Controller) watchError() error {
	if err := c.accountsErr.Load(); err != nil {
		return *err
	}
	return errors.New("no response yet")
}

// Synced reports whether all accounts of the hub and the managed cluster are known.
func (c *Controller) Synced() bool {
	return c.ownerInformer.HasSynced() && c.accountInformer.HasSynced()
}

// Unserved reports whether the hub does not serve ManagedServiceAccounts, or does not allow the
// agent to watch them.
func (c *Controller) Unserved() bool { return !c.ownerInformer.HasSynced() && c.hubAccounts.Absent() }

// Run reconciles accounts until ctx ends. It returns when all its goroutines have ended.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	c.readCA(ctx)
	running.Go(func() { c.watchCA(ctx) })
	running.Go(func() { c.ownerInformer.RunWithContext(ctx) })
	running.Go(func() { c.accountInformer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), c.ownerInformer.HasSynced) {
		return nil
	}
	err := wait.PollUntilContextCancel(ctx, syncPoll, true, func(context.Context) (bool, error) {
		return c.accountInformer.HasSynced() || apierrors.IsForbidden(c.watchError()), nil
	})
	if err != nil {
		return nil
	}
	klog.FromContext(ctx).Info("Keeping ServiceAccounts", "cluster", c.ClusterName, "namespace", c.Namespace, "identity", c.Identity)
	c.loop.Run(ctx)
	return nil
}

func (c *Controller) pass(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	st := c.state(key.Name)
	result, err := c.reconcile(ctx, key.Name, st)
	st.conflict = result.conflict
	c.loop.SetState(key, result.state)
	switch {
	case err != nil:
		return 0, err
	case result.waiting:
		return 0, reconcile.RequeueAfter(result.again)
	}
	st.notBefore = time.Time{}
	return result.again, nil
}

func (c *Controller) retry(key cache.ObjectName, _ error, delay time.Duration) time.Duration {
	st := c.state(key.Name)
	if st.conflict {
		delay = min(delay, conflictRetry)
	}
	st.notBefore = c.Clock.Now().Add(delay)
	return delay
}

// caInterval is the interval at which the CA of the managed cluster is read.
const caInterval = 10 * time.Second

// caBundle is the CA of the managed cluster, or the error of reading it if it was never read.
type caBundle struct {
	content string
	err     error
}

// readCA reads the CA, and triggers a pass over all accounts if it has changed. After an error, the
// last content is kept.
func (c *Controller) readCA(ctx context.Context) {
	content, err := c.CA()
	before, now := c.ca.Load(), &caBundle{string(content), err}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read the CA of the managed cluster")
		if before != nil && before.err == nil {
			return
		}
	}
	c.ca.Store(now)
	if err == nil && (before == nil || before.err != nil || before.content != now.content) {
		klog.FromContext(ctx).V(2).Info("The CA of the managed cluster has changed")
		c.enqueueAll()
	}
}

func (c *Controller) watchCA(ctx context.Context) {
	ticker := c.Clock.NewTicker(caInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			c.readCA(ctx)
		}
	}
}
