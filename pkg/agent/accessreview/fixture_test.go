package accessreview

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
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"

	"open-cluster-management.io/hub-apiserver/pkg/rbac"
	"open-cluster-management.io/hub-apiserver/test/await"
)

// cluster is a fake cluster that answers reviews with judge and counts them.
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
		return nil, fmt.Errorf("review for user %q in groups %q, want a ServiceAccount and its groups", review.Spec.User, review.Spec.Groups)
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

// setJudge replaces judge.
func (c *cluster) setJudge(judge func(context.Context, types.NamespacedName, Request) (authorizationv1.SubjectAccessReviewStatus, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judge = judge
}

// allow makes the cluster allow or deny everything.
func (c *cluster) allow(allowed bool) {
	c.setJudge(func(context.Context, types.NamespacedName, Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		return authorizationv1.SubjectAccessReviewStatus{Allowed: allowed, Reason: "as the test says"}, nil
	})
}

// takeAsked returns the requests since the last call.
func (c *cluster) takeAsked() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

// notified counts the notifications of accounts.
type notified struct {
	mu     sync.Mutex
	counts map[types.NamespacedName]int
}

func (n *notified) changed(account types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counts == nil {
		n.counts = map[types.NamespacedName]int{}
	}
	n.counts[account]++
}

func (n *notified) count(account types.NamespacedName) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts[account]
}

// fixture is a Reviewer with a fake cluster and a fake clock.
type fixture struct {
	*Reviewer
	t        *testing.T
	cluster  *cluster
	clock    *clocktesting.FakeClock
	notified *notified
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, cluster: &cluster{}, clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), notified: &notified{}}
	f.cluster.allow(true)
	f.Reviewer = NewReviewer(Config{Client: f.cluster, Clock: f.clock})
	return f
}

// newWatchingFixture returns a fixture whose Reviewer has watched RBAC for an hour. The
// test sends the events.
func newWatchingFixture(t *testing.T) *fixture {
	f := newFixture(t)
	w := &watches{
		changed: f.notified.changed, clock: f.clock, policy: newPolicy(),
		rechecks: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[recheck]{Clock: f.clock}),
		began:    f.clock.Now().Add(-time.Hour), synced: f.clock.Now().Add(-time.Hour),
	}
	var running sync.WaitGroup
	running.Go(func() { w.notifyRechecks(context.WithoutCancel(t.Context())) })
	t.Cleanup(func() {
		w.rechecks.ShutDown()
		running.Wait()
	})
	f.watches = w
	return f
}

// role sends an event of a ClusterRole.
func (f *fixture) role(name string, rules ...rbacv1.PolicyRule) {
	key := rbac.Key{Kind: rbac.KindClusterRole, Name: name}
	f.update(f.watches, func(p *policy) event { return p.setRole(key, &ruleSet{rules: rules}) }, nil)
}

func (f *fixture) bind(key rbac.Key, role string, accounts ...types.NamespacedName) {
	var subjects []rbacv1.Subject
	for _, account := range accounts {
		subjects = append(subjects, accountSubject(account))
	}
	f.update(f.watches, func(p *policy) event {
		return p.setBinding(key, rbac.NewBinding(key.Namespace, rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, subjects))
	}, nil)
}

// review reports for each request whether it is allowed, and returns the number of requests that
// were sent to the cluster.
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

// want reviews requests. It checks that all have the given decision, and that the given number of
// requests was sent to the cluster.
func (f *fixture) want(account types.NamespacedName, allowed bool, asked int, requests ...Request) {
	f.t.Helper()
	got, n := f.review(account, 0, requests...)
	if slices.Contains(got, !allowed) || n != asked {
		f.t.Errorf("Review(%v) = %v with %d requests to the cluster, want %t with %d", requests, got, n, allowed, asked)
	}
}

// wantNotified waits until an account has been notified the given number of times.
func (f *fixture) wantNotified(account types.NamespacedName, times int) {
	f.t.Helper()
	await.Eventually(f.t, fmt.Sprintf("%s is notified %d times", account, times), func() error {
		if got := f.notified.count(account); got < times {
			return fmt.Errorf("notified %d times", got)
		}
		return nil
	})
}

// after advances the clock once a caller waits for it.
func (f *fixture) after(d time.Duration) {
	f.t.Helper()
	await.Eventually(f.t, "a caller waits for the clock", func() error {
		if !f.clock.HasWaiters() {
			return errors.New("no caller waits")
		}
		return nil
	})
	f.clock.Step(d)
}
