package access

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
)

const (
	// parallelism is how many reviews the cluster is asked for at once about one account.
	parallelism = 16
	// maxParallelism is the same about all accounts, so that a single one does not keep
	// the others waiting.
	maxParallelism = 4 * parallelism
	// syncTimeout is how long reviews wait for a first look at RBAC.
	syncTimeout = 5 * time.Second
	// rulesTimeout is how long questions about rules wait for RBAC to be watched.
	rulesTimeout = 10 * time.Second
)

// Config is what a Reviewer is made of.
type Config struct {
	// Client asks the managed cluster for reviews, with the rate limit of its own.
	Client authorizationv1client.AuthorizationV1Interface
	// RBAC lists and watches roles and bindings of all namespaces.
	RBAC rbacv1client.RbacV1Interface
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Reviewer tells what ServiceAccounts may do on the managed cluster. NewReviewer
// returns one. All methods may be called at any time from any goroutine.
type Reviewer struct {
	client authorizationv1client.AuthorizationV1Interface
	rbac   rbacv1client.RbacV1Interface
	clock  clock.WithTicker

	// slots are taken by reviews that are under way.
	slots chan struct{}
	// wanted is closed when the first account is asked about.
	wanted     chan struct{}
	wantedOnce sync.Once

	mu        sync.Mutex
	cache     *cache
	unsettled unsettledEvents
	// watches is nil while Run does not run.
	watches *watches
	// next is closed and replaced whenever the state of the watches changes.
	next chan struct{}
}

// NewReviewer returns a Reviewer. It answers at once, but remembers answers for
// long only while Run runs.
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

// Review returns one decision for each request, in their order. What is known and
// holds is not asked again, but allowed answers that are older than maxAge are; 0
// is any age. It is an error if any request could not be judged; then there is no
// decision at all, and what could not be judged is asked again next time.
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
	now, watching := r.clock.Now(), r.watches.whole()
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
		// A cluster that does not answer one would let the others wait as well.
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
		// Nothing is begun once the context has ended.
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("asking the managed cluster what %s may do: %w", account, err)
	}
	return decisions, nil
}

// Rules returns the rules that RBAC grants an account: those it has everywhere,
// and those it has in a namespace unless that is empty. From then on, a change of
// them is one that Run tells. It waits for RBAC to be watched, for at most 10
// seconds; the error says what the agent lacks for that. The rules must not be
// changed.
func (r *Reviewer) Rules(ctx context.Context, account types.NamespacedName, namespace string) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	err := r.read(ctx, account, question{topic: aboutRules, request: Request{Namespace: namespace}}, func(p *policy) {
		rules = p.rules(account, namespace)
	})
	if err != nil {
		return nil, fmt.Errorf("finding the rules that RBAC grants %s: %w", account, err)
	}
	return rules, nil
}

// RoleRules returns the rules of the role that a binding in a namespace refers to,
// which is empty for a ClusterRoleBinding, and whether there is such a role. From
// then on, a change of them is one that Run tells for the account. It waits and
// fails as Rules does. The rules must not be changed.
func (r *Reviewer) RoleRules(ctx context.Context, account types.NamespacedName, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, bool, error) {
	key := roleKey(ref, namespace)
	if key == (objectKey{}) {
		return nil, false, nil
	}
	var rules *ruleSet
	err := r.read(ctx, account, question{topic: aboutRole, request: roleRequest(key)}, func(p *policy) {
		rules = p.roles[key]
	})
	if err != nil {
		return nil, false, fmt.Errorf("finding the rules of %s %s: %w", ref.Kind, ref.Name, err)
	}
	return rules.list(), rules != nil, nil
}

// read reads the policy once it is known, and remembers what it was read for.
func (r *Reviewer) read(ctx context.Context, account types.NamespacedName, q question, from func(*policy)) error {
	if err := r.awaitWatching(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.watches.lacking(); err != nil {
		return err
	}
	from(r.watches.policy)
	r.cache.of(account)
	r.cache.put(account, q, &answer{asked: r.clock.Now(), watched: true})
	return nil
}

// Forget forgets what was asked about an account: nobody wants to know any more.
func (r *Reviewer) Forget(account types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.forget(account)
}
