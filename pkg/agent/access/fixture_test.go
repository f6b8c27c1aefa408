package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
)

// patience bounds every wait of the tests.
const patience = 30 * time.Second

// eventually polls until check returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v (last: %v)", what, err, last)
	}
}

// cluster is asked for reviews and answers as judge says. It counts what it is asked.
type cluster struct {
	authorizationv1client.AuthorizationV1Interface
	authorizationv1client.SubjectAccessReviewInterface

	mu    sync.Mutex
	judge func(context.Context, types.NamespacedName, Request) (authorizationv1.SubjectAccessReviewStatus, error)
	asked []Request
	now   int
	most  int
}

func (c *cluster) SubjectAccessReviews() authorizationv1client.SubjectAccessReviewInterface { return c }

func (c *cluster) Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	attributes := review.Spec.ResourceAttributes
	request := Request{
		Verb: attributes.Verb, Group: attributes.Group, Version: attributes.Version, Resource: attributes.Resource,
		Namespace: attributes.Namespace, Name: attributes.Name,
	}
	if attributes.Subresource != "" {
		request.Resource += "/" + attributes.Subresource
	}
	var account types.NamespacedName
	for _, known := range []types.NamespacedName{alice, bob, carol} {
		if review.Spec.User == "system:serviceaccount:"+known.Namespace+":"+known.Name && slices.Equal(review.Spec.Groups,
			[]string{"system:serviceaccounts", "system:serviceaccounts:" + known.Namespace, "system:authenticated"}) {
			account = known
		}
	}
	if account.Name == "" {
		return nil, fmt.Errorf("a review for user %q of groups %q", review.Spec.User, review.Spec.Groups)
	}
	c.mu.Lock()
	c.asked = append(c.asked, request)
	c.now++
	c.most = max(c.most, c.now)
	judge := c.judge
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.now--
		c.mu.Unlock()
	}()
	status, err := judge(ctx, account, request)
	if err != nil {
		return nil, err
	}
	return &authorizationv1.SubjectAccessReview{Status: status}, nil
}

// setJudge replaces how the cluster judges.
func (c *cluster) setJudge(judge func(context.Context, types.NamespacedName, Request) (authorizationv1.SubjectAccessReviewStatus, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judge = judge
}

// allow lets the cluster give the same answer to everything.
func (c *cluster) allow(allowed bool) {
	c.setJudge(func(context.Context, types.NamespacedName, Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: allowed, Reason: "as the test says"}, nil
	})
}

// takeAsked returns what was asked since the last call.
func (c *cluster) takeAsked() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

// told counts how often accounts are told of a change.
type told struct {
	mu     sync.Mutex
	counts map[types.NamespacedName]int
}

func (n *told) changed(account types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counts == nil {
		n.counts = map[types.NamespacedName]int{}
	}
	n.counts[account]++
}

func (n *told) count(account types.NamespacedName) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts[account]
}

// fixture is a Reviewer on a cluster and a clock of the test's.
type fixture struct {
	*Reviewer
	t       *testing.T
	cluster *cluster
	clock   *clocktesting.FakeClock
	told    *told
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, cluster: &cluster{}, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), told: &told{}}
	f.cluster.allow(true)
	f.Reviewer = NewReviewer(Config{Client: f.cluster, Clock: f.clock})
	return f
}

// newWatchingFixture lets the Reviewer believe that it has been watching RBAC for
// long; what happens is what the test lets it learn.
func newWatchingFixture(t *testing.T) *fixture {
	f := newFixture(t)
	w := &watches{
		changed: f.told.changed, clock: f.clock, policy: newPolicy(),
		rechecks: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[recheck]{Clock: f.clock}),
		began:    f.clock.Now().Add(-time.Hour), synced: f.clock.Now().Add(-time.Hour),
	}
	var running sync.WaitGroup
	running.Go(func() { w.tellRechecks(context.WithoutCancel(t.Context())) })
	t.Cleanup(func() {
		w.rechecks.ShutDown()
		running.Wait()
	})
	f.watches = w
	return f
}

// role and bind are events that are watched now.
func (f *fixture) role(key objectKey, rules ...rbacv1.PolicyRule) {
	f.learn(f.watches, func(p *policy) event { return p.setRole(key, &ruleSet{rules: rules}) }, nil)
}

func (f *fixture) bind(key objectKey, role string, accounts ...types.NamespacedName) {
	var subjects []rbacv1.Subject
	for _, account := range accounts {
		subjects = append(subjects, accountSubject(account))
	}
	f.learn(f.watches, func(p *policy) event {
		return p.setBinding(key, newBinding(key, rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, subjects))
	}, nil)
}

// review returns whether requests are allowed, and how many the cluster was asked
// about for that.
func (f *fixture) review(account types.NamespacedName, maxAge time.Duration, requests ...Request) ([]bool, int) {
	f.t.Helper()
	f.cluster.takeAsked()
	decisions, err := f.Review(f.t.Context(), account, requests, maxAge)
	if err != nil {
		f.t.Fatal(err)
	}
	var allowed []bool
	for _, decision := range decisions {
		allowed = append(allowed, decision.Allowed)
	}
	return allowed, len(f.cluster.takeAsked())
}

// want reviews requests, and wants the same decision for all of them, after as
// many questions to the cluster.
func (f *fixture) want(account types.NamespacedName, allowed bool, asked int, requests ...Request) {
	f.t.Helper()
	got, n := f.review(account, 0, requests...)
	if slices.Contains(got, !allowed) || n != asked {
		f.t.Errorf("allowed %v after %d questions", got, n)
	}
}

// wantTold waits until an account has been told at least so often.
func (f *fixture) wantTold(account types.NamespacedName, times int) {
	f.t.Helper()
	eventually(f.t, "the account is told", func() error {
		if got := f.told.count(account); got < times {
			return fmt.Errorf("told %d times", got)
		}
		return nil
	})
}

// after lets time pass once somebody waits for it.
func (f *fixture) after(d time.Duration) {
	f.t.Helper()
	eventually(f.t, "somebody waits for the clock", func() error {
		if !f.clock.HasWaiters() {
			return errors.New("nobody does")
		}
		return nil
	})
	f.clock.Step(d)
}
