package accessreview

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
)

const (
	// parallelism is the maximum number of parallel reviews of one account.
	parallelism = 16
	// maxParallelism is the maximum number of parallel reviews of all accounts. It exceeds
	// parallelism so that one account does not delay the others.
	maxParallelism = 4 * parallelism
	// syncTimeout bounds the time that reviews wait until RBAC is listed.
	syncTimeout = 5 * time.Second
	// rulesTimeout bounds the time that questions about rules wait until RBAC is watched.
	rulesTimeout = 10 * time.Second
)

// Config configures a Reviewer.
type Config struct {
	// Client sends reviews to the managed cluster. It requires its own rate limit.
	Client authorizationv1client.AuthorizationV1Interface
	// RBAC lists and watches roles and bindings of all namespaces.
	RBAC rbacv1client.RbacV1Interface
	// Clock defaults to the real clock.
	Clock clock.WithTicker
}

// Reviewer checks the permissions of ServiceAccounts on the managed cluster. It may be
// used concurrently.
type Reviewer struct {
	client authorizationv1client.AuthorizationV1Interface
	rbac   rbacv1client.RbacV1Interface
	clock  clock.WithTicker

	// slots limits the parallel reviews of all accounts.
	slots chan struct{}
	// wanted is closed by the first question.
	wanted     chan struct{}
	wantedOnce sync.Once

	mu        sync.Mutex
	cache     *cache
	unsettled unsettledEvents
	// watches is nil unless Run is running.
	watches *watches
	// next is closed and replaced whenever the state of the watches changes.
	next chan struct{}
}

// NewReviewer returns a Reviewer. Unless Run is running, it caches answers only briefly.
func NewReviewer(config Config) *Reviewer {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	return &Reviewer{
		client: config.Client, rbac: config.RBAC, clock: config.Clock,
		slots: make(chan struct{}, maxParallelism), wanted: make(chan struct{}),
		cache: newCache(capacity), next: make(chan struct{}),
	}
}

// Review returns one decision for each request, in their order. It uses valid cached answers,
// except allowed ones older than maxAge; 0 accepts any age. If any request cannot be decided,
// Review returns an error and no decisions.
func (r *Reviewer) Review(ctx context.Context, account types.NamespacedName, requests []Request, maxAge time.Duration) ([]Decision, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	if err := r.awaitSettled(ctx); err != nil {
		return nil, err
	}
	decisions := make([]Decision, len(requests))
	var unknown []Request
	places := map[Request][]int{}
	r.mu.Lock()
	now, watching := r.clock.Now(), r.watches.complete()
	for i, request := range requests {
		known := r.cache.get(account, question{request: request})
		if known.holds(now, maxAge, watching) {
			decisions[i] = known.decision
			continue
		}
		if places[request] == nil {
			unknown = append(unknown, request)
		}
		places[request] = append(places[request], i)
	}
	r.mu.Unlock()
	missed := 0
	for _, at := range places {
		missed += len(at)
	}
	lookups.WithLabelValues("hit").Add(float64(len(requests) - missed))
	lookups.WithLabelValues("miss").Add(float64(missed))

	errs := make([]error, len(unknown))
	var failed atomic.Bool
	workqueue.ParallelizeUntil(ctx, parallelism, len(unknown), func(i int) {
		// If the cluster fails to answer one request, the others would wait for it as well.
		if failed.Load() {
			return
		}
		decision, err := r.ask(ctx, account, unknown[i], maxAge)
		if err != nil {
			failed.Store(true)
			errs[i] = err
			return
		}
		for _, at := range places[unknown[i]] {
			decisions[at] = decision
		}
	})
	var err error = utilerrors.NewAggregate(errs)
	if err == nil {
		// Requests are skipped once the context has ended.
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("checking the access of ServiceAccount %s on the managed cluster: %w", account, err)
	}
	return decisions, nil
}

// Rules returns the rules that RBAC grants to an account in all namespaces and, unless namespace is
// empty, the rules in that namespace. From then on, Run reports changes of these rules. Rules waits
// at most 10 seconds until RBAC is watched. If that fails, the error names the permissions that the
// agent lacks. Callers must not modify the rules.
func (r *Reviewer) Rules(ctx context.Context, account types.NamespacedName, namespace string) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	err := r.read(ctx, account, question{topic: aboutRules, request: Request{Namespace: namespace}}, func(p *policy) {
		rules = p.rules(account, namespace)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the rules that RBAC grants to ServiceAccount %s: %w", account, err)
	}
	return rules, nil
}

// RoleRules returns the rules of the role that a binding in a namespace refers to, and reports
// whether the role exists. The namespace of a ClusterRoleBinding is empty. From then on, Run
// reports changes of the rules for the account. RoleRules waits and fails like Rules. Callers must
// not modify the rules.
func (r *Reviewer) RoleRules(ctx context.Context, account types.NamespacedName, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, bool, error) {
	key := rbac.RoleKey(ref, namespace)
	if key == (rbac.Key{}) {
		return nil, false, nil
	}
	var rules *ruleSet
	err := r.read(ctx, account, question{topic: aboutRole, request: roleRequest(key)}, func(p *policy) {
		rules = p.index.Role(key)
	})
	if err != nil {
		return nil, false, fmt.Errorf("reading the rules of %s %s: %w", ref.Kind, ref.Name, err)
	}
	return rules.list(), rules != nil, nil
}

// read reads the policy once RBAC is watched, and registers the question.
func (r *Reviewer) read(ctx context.Context, account types.NamespacedName, q question, from func(*policy)) error {
	if err := r.awaitWatching(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.watches.incomplete(); err != nil {
		return err
	}
	from(r.watches.policy)
	r.cache.of(account)
	r.cache.put(account, q, &answer{asked: r.clock.Now(), watched: true})
	return nil
}

// Forget removes an account from the cache. Run then reports no more changes for it.
func (r *Reviewer) Forget(account types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.forget(account)
}
